"""`ebpfprof completion`: the script that lets a shell complete the command line."""

from __future__ import annotations

import click

from ebpfprof.commands.parameter_types import OneOf
from ebpfprof.commands.verb import Verb

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion", cls=Verb)
@click.argument("shell", type=OneOf(_SHELLS))
def command(shell: str) -> None:
    """Print a script that lets a shell complete verbs and options.

    The shell asks the command itself, so the script need not be made again for a new version.
    Completing needs no rights, and touches no process.

    \b
    Examples:
      source <(ebpfprof completion bash)        # for this shell, bash or zsh
      ebpfprof completion bash | sudo tee /etc/bash_completion.d/ebpfprof >/dev/null
      ebpfprof completion zsh >"${fpath[1]}/_ebpfprof"
      ebpfprof completion fish >~/.config/fish/completions/ebpfprof.fish
    """
    from click.shell_completion import get_completion_class

    from ebpfprof.console.terminal import say

    cli = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None
    # Not source(): to look at the version it runs the bash that comes first here.
    complete = kind(cli, {}, "ebpfprof", "_EBPFPROF_COMPLETE")
    say(complete.source_template % complete.source_vars(), end="")
