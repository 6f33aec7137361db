#compdef lathe
# zsh completion of lathe: verbs and options as its help prints them; files for all else.

_lathe() {
  local -a words_of_help
  if ((CURRENT == 2)); then
    words_of_help=(${(f)"$(lathe --help 2>/dev/null | sed -nE 's/^  lathe ([a-z]+)  +(.*)/\1:\2/p')"})
    _describe verb words_of_help
  elif [[ $PREFIX == -* ]]; then
    words_of_help=(${(f)"$(lathe $words[2] --help 2>/dev/null | grep -oE '^  --?[a-z][a-z-]*=?' | tr -d ' ')"})
    compadd -S '' -- $words_of_help
  else
    _files
  fi
}

_lathe "$@"
