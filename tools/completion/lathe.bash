# bash completion of lathe: verbs and options as its help prints them; files for all else.

_lathe_words() { # [VERB]
  if [[ -n ${1-} ]]; then
    lathe "$1" --help 2>/dev/null | grep -oE '^  --?[a-z][a-z-]*=?' | tr -d ' '
  else
    lathe --help 2>/dev/null | sed -nE 's/^  lathe ([a-z]+)  +.*/\1/p'
  fi
}

_lathe() {
  local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]-}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "$(_lathe_words) --help --version" -- "$word")
  elif [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_lathe_words "$verb")" -- "$word")
    # An option with a value goes on behind its `=`.
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
  return 0
}

complete -o filenames -F _lathe lathe
