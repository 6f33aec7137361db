# fish completion of lathe: verbs and options as its help prints them; files for all else.

function __lathe_verbs
    lathe --help 2>/dev/null | string replace -rf '^  lathe ([a-z]+)  +(.*)' '$1\t$2'
end

function __lathe_options
    set -l verb (commandline -opc)[2]
    lathe $verb --help 2>/dev/null | string replace -rf '^  (--?[a-z][a-z-]*=?).*' '$1'
end

complete -c lathe -n __fish_use_subcommand -f -a '(__lathe_verbs)'
complete -c lathe -n 'not __fish_use_subcommand; and string match -q -- "-*" (commandline -ct)' -f -a '(__lathe_options)'
