"""What makes a shell complete `omnigraph`. Every Tab runs the program with the words of the line, and the number of the
word under the cursor in a variable; it answers with a candidate per line, and a tab before what that is.

A first line `:files` asks the shell to complete names of files itself.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

VARIABLE: Final = "OMNIGRAPH_COMPLETE"
FILES: Final = ":files"


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


SCRIPTS: Final = {
    Shell.BASH: f"""\
# bash completion of omnigraph:  source <(omnigraph completion bash)
_omnigraph() {{
    local IFS=$'\\n' line
    COMPREPLY=()
    for line in $({VARIABLE}=$COMP_CWORD "${{COMP_WORDS[0]}}" "${{COMP_WORDS[@]:1}}" 2>/dev/null); do
        if [[ $line == {FILES} ]]; then
            compopt -o default
            return
        fi
        COMPREPLY+=("${{line%%$'\\t'*}}")
    done
    [[ ${{#COMPREPLY[@]}} -eq 1 && ${{COMPREPLY[0]}} == */ ]] && compopt -o nospace
}}
complete -F _omnigraph omnigraph
""",
    Shell.ZSH: f"""\
#compdef omnigraph
# zsh completion of omnigraph:  source <(omnigraph completion zsh), after compinit; or as _omnigraph in $fpath
_omnigraph() {{
    local -a answer described
    local line
    answer=("${{(@f)$({VARIABLE}=$((CURRENT - 1)) "${{words[1]}}" "${{(@)words[2,-1]}}" 2>/dev/null)}}")
    if [[ "${{answer[1]}}" == {FILES} ]]; then
        _files
        return
    fi
    for line in "${{answer[@]}}"; do
        [[ -n $line ]] && described+=("${{${{line%%$'\\t'*}}//:/\\\\:}}:${{line#*$'\\t'}}")
    done
    _describe omnigraph described
}}
if [[ "${{funcstack[1]}}" == _omnigraph ]]; then
    _omnigraph "$@"
else
    compdef _omnigraph omnigraph
fi
""",
    Shell.FISH: f"""\
# fish completion of omnigraph:  omnigraph completion fish | source
function __omnigraph_complete
    set -l line (commandline -opc) (commandline -ct)
    set -l answer (env {VARIABLE}=(math (count $line) - 1) $line[1] $line[2..-1] 2>/dev/null)
    if test "$answer[1]" = {FILES}
        __fish_complete_path (commandline -ct)
    else
        printf '%s\\n' $answer
    end
end
complete -c omnigraph -f -a '(__omnigraph_complete)'
""",
}
