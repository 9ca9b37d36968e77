"""Options that choose the processes a verb works on: by pid, by name, by container, or all."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import click

from ebpfprof.commands.parameter_types import PID, WrongValue, list_of
from ebpfprof.errors import to_type
from ebpfprof.settings.values import TextValue, refused

MIN_CONTAINER_ID = 6
_PID_ARGUMENTS = "ebpfprof.pid_arguments"
ALL_GO_ALONE = "--all-go selects every Go process: omit --pid and --name."
NO_PROCESS_CHOSEN = (
    "Choose processes: PID, --name NAME, --container ID or --all-go. To list them:"
    f"{to_type('ebpfprof list')}"
)


def keep_libraries_to_one_thread() -> None:
    """Call this before numpy is imported, in a process that drops rights later.

    numpy starts OpenBLAS, whose threads would keep the rights.
    """
    os.environ["OPENBLAS_NUM_THREADS"] = "1"


def target_options(required: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: PIDs, -p/--pid, -n/--name, --container, --all-go, passed as `pids: list[int]`.

    With `required` one of them must be given; else `pids` is empty if none is. The verb raises
    NoSuchProcess if nothing matches.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_targets(
            *args: Any,  # noqa: ANN401 - arguments of the command, of any type
            pids: list[int],
            names: list[str],
            containers: list[str],
            all_go: bool,
            **values: Any,  # noqa: ANN401 - its other options, of any type
        ) -> Any:  # noqa: ANN401 - what the command returns, of any type
            keep_libraries_to_one_thread()
            return command(
                *args, pids=_selected(pids, names, containers, all_go, required), **values
            )

        for option in reversed(_OPTIONS):
            with_targets = option(with_targets)
        return with_targets

    return decorate


def _selected(
    pids: list[int], names: list[str], containers: list[str], all_go: bool, required: bool
) -> list[int]:
    if all_go and (pids or names):
        raise click.UsageError(ALL_GO_ALONE)
    if not (pids or names or containers or all_go):
        if not required:
            return []
        raise click.UsageError(NO_PROCESS_CHOSEN)
    from ebpfprof.discovery.processes import find
    from ebpfprof.process.process import require_process

    for pid in pids:  # before anything is compiled
        require_process(pid)
    return find(pids, names, containers, all_go)


def _keep_arguments(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> None:
    """A callback that keeps the pids without --pid for the callback of --pid."""
    ctx.meta[_PID_ARGUMENTS] = list_of(PID)(ctx, param, values)


def _pids(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[int]:
    """A callback: the pids without --pid, then those with it."""
    return list(dict.fromkeys([*ctx.meta[_PID_ARGUMENTS], *list_of(PID)(ctx, param, values)]))


def _container_ids(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[str]:
    ids: list[str] = list_of(TextValue(may_be_empty=True))(ctx, param, values)
    for text in ids:
        if len(text) < MIN_CONTAINER_ID:
            wants = f"at least the first {MIN_CONTAINER_ID} characters of a container id"
            raise WrongValue(str(refused(wants, text)))
    return ids


def names_of(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[str]:
    """A callback that refuses an empty name."""
    if "" in values:
        raise WrongValue(str(refused("a name", "")))
    return list(values)


def name_option(*, help: str) -> Callable[..., Any]:
    """The option -n/--name, passed as `names: list[str]`."""
    return click.option(
        "-n", "--name", "names", callback=names_of, metavar="NAME", multiple=True, help=help
    )


_OPTIONS = (
    click.argument(
        "pid_arguments",
        nargs=-1,
        callback=_keep_arguments,
        metavar="[PID]...",
        expose_value=False,
        is_eager=True,  # before --pid
    ),
    click.option(
        "-p",
        "--pid",
        "pids",
        callback=_pids,
        metavar="PID[,PID...]",
        multiple=True,
        help="Process to profile; may be repeated. PID alone works, too.",
    ),
    name_option(
        help="Processes whose command or executable matches NAME (shell patterns allowed); may be "
        "repeated."
    ),
    click.option(
        "--container",
        "containers",
        callback=_container_ids,
        metavar="ID",
        multiple=True,
        help="Go processes in the container whose id begins with ID (at least "
        f"{MIN_CONTAINER_ID} characters); with --name, only those that match NAME.",
    ),
    click.option(
        "--all-go",
        is_flag=True,
        help="All Go processes that can be profiled.",
    ),
)
