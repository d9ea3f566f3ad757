"""Completion for the shells: commands and options, from the same table that reads them."""

from __future__ import annotations

from .options import COMMANDS, EVERYWHERE, SHELLS

WORDS = {
    "observe": "grafana alerts",
    "fence": "install remove table",
    "advise": "store ttl",
    "completion": " ".join(SHELLS),
    "help": " ".join(COMMANDS),
}

BASH = """\
_holdfast() {
    local word="${COMP_WORDS[COMP_CWORD]}" i
    for ((i = 1; i < COMP_CWORD; i++)); do
        [ "${COMP_WORDS[i]}" = -- ] && { COMPREPLY=($(compgen -c -f -- "$word")); return; }
    done
    case "${COMP_WORDS[1]}" in
%s
    *) COMPREPLY=($(compgen -W "%s" -- "$word")) ;;
    esac
}
complete -o default -F _holdfast holdfast"""


def _known(command: str) -> str:
    options = " ".join(one for one in {**COMMANDS[command], **EVERYWHERE} if one.startswith("--"))
    return f"{WORDS[command]} {options}" if command in WORDS else options


def _bash() -> str:
    cases = [f'    {one}) COMPREPLY=($(compgen -W "{_known(one)}" -- "$word")) ;;' for one in COMMANDS]
    return BASH % ("\n".join(cases), " ".join((*COMMANDS, "--help", "--version")))


# A file in fpath is the body of a function that is called for the first completion: that one is to be answered, too.
ZSH = """\
#compdef holdfast
autoload -U +X bashcompinit && bashcompinit
%s
if [ "${funcstack[1]}" = _holdfast ]; then _bash_complete -o default -F _holdfast; fi"""

FISH_COMMAND = (
    "complete -c holdfast -n 'test (commandline -opc)[-1] = --' -a '(complete --do-complete=(commandline -ct))'"
)


def _zsh() -> str:
    return ZSH % _bash()


def _fish() -> str:
    lines = [f"complete -c holdfast -n __fish_use_subcommand -f -a {one}" for one in COMMANDS]
    for command in COMMANDS:
        seen = f"complete -c holdfast -n '__fish_seen_subcommand_from {command}'"
        words = _known(command).split()
        lines += [f"{seen} -l {word[2:]}" if word.startswith("--") else f"{seen} -f -a {word}" for word in words]
    return "\n".join([*lines, FISH_COMMAND])


def script(shell: str) -> str:
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()
