"""`ebpfprof completion`: the script for shell completion."""

from __future__ import annotations

import click

from ebpfprof.commands.parameter_types import OneOf
from ebpfprof.commands.verb import Verb

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion", cls=Verb)
@click.argument("shell", type=OneOf(_SHELLS))
def command(shell: str) -> None:
    """Print a script for shell completion of verbs and options.

    The script calls ebpfprof, so it stays valid for new versions. Completion needs no rights and
    touches no process.

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
    # Not source(): it runs the first bash on the PATH, to read its version.
    complete = kind(cli, {}, "ebpfprof", "_EBPFPROF_COMPLETE")
    say(complete.source_template % complete.source_vars(), end="")
