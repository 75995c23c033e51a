"""`omnigraph completion`: the script that makes a shell complete command lines."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.completion.scripts import SCRIPTS, Shell
from omnigraph.cli.output import print_text


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.", metavar="bash|zsh|fish")]) -> None:
    """Print the script that completes command lines in a shell.

    For bash put `source <(omnigraph completion bash)` into ~/.bashrc, for zsh the same with zsh into ~/.zshrc after
    compinit, for fish `omnigraph completion fish | source` into ~/.config/fish/config.fish.
    """
    print_text(SCRIPTS[shell])
