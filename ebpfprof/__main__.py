"""The entry point of `ebpfprof`, and the only place where exceptions become exit codes."""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_DEBUG = "EBPFPROF_DEBUG"
_NO_MEMORY = (
    "Out of memory: the memory limit (ulimit, control group) is too low, or the input is too "
    "large. Raise the limit, or read a smaller file."
)
_OBJECTS_PER_COLLECTION = 100_000  # the modules of a recording have two thirds of that


def main() -> NoReturn:
    """Run the command."""
    # First of all: before it, SIGINT ends the process with a traceback.
    from ebpfprof.system import signals

    signals.install()
    try:
        code = signals.interruptible(_run)
    except KeyboardInterrupt:
        from ebpfprof.errors import ExitCode

        code = ExitCode.ABORTED
    signals.ignore()
    gc.freeze()  # else Python searches all objects for garbage before it ends: 0.05 s
    sys.exit(code)


def collect_less_often() -> None:
    """Make Python's garbage collector run less often.

    Stacks are many small, long-lived objects. With the default thresholds, the collector visits
    them so often that a snapshot of 20,000 stacks takes 1.5 times as long.
    """
    gc.set_threshold(_OBJECTS_PER_COLLECTION, 20, 20)


def _run() -> int:
    from io import StringIO

    from ebpfprof.console.terminal import say
    from ebpfprof.errors import SET_USER_ID, ExitCode

    collect_less_often()
    _open_standard_files()
    if (os.getuid(), os.getgid()) != (os.geteuid(), os.getegid()):
        say("ebpfprof: " + SET_USER_ID, err=True)
        return ExitCode.PERMISSION_DENIED
    try:
        import click

        from ebpfprof.commands.cli import cli

        try:
            return int(cli.main(prog_name="ebpfprof", standalone_mode=False) or ExitCode.OK)
        except click.ClickException as error:
            message = StringIO()
            error.show(message)
            say(message.getvalue(), err=True, end="")
            return error.exit_code
        except click.Abort:
            return ExitCode.ABORTED
    except ExceptionGroup as group:
        codes = [_report(error) for error in group.exceptions]
        return codes[0]
    except Exception as error:  # any error: its message and exit code are our output
        return _report(error)


def _report(error: Exception) -> int:
    """Print the error to stderr; return its exit code."""
    import traceback

    from ebpfprof.console.terminal import say
    from ebpfprof.console.text import printable
    from ebpfprof.errors import EbpfprofError, ExitCode
    from ebpfprof.system.open_files import too_many

    error = too_many(error) or error
    if isinstance(error, EbpfprofError):
        # Names of targets and files may have escape sequences, which the terminal must not get.
        lines = map(printable, str(error).splitlines())
        say("ebpfprof: " + "\n".join(lines), err=True)
        return int(error.exit_code)
    if isinstance(error, MemoryError):
        say(f"ebpfprof: {_NO_MEMORY}", err=True)
        return ExitCode.FAILURE
    if os.environ.get(_DEBUG) == "1":
        say("".join(traceback.format_exception(error)), err=True)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    say(
        f"ebpfprof: This is a bug: {type(error).__name__}{where}: {printable(str(error))}. Please "
        f"report it, with the output of the same command with {_DEBUG}=1 in its environment.",
        err=True,
    )
    return ExitCode.FAILURE


def _open_standard_files() -> None:
    """Open closed stdin, stdout and stderr, so that no other file gets their numbers.

    Writing to them still fails.
    """
    for fd, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, mode)  # the kernel gives it the lowest free number: `fd`


def _forget_current_folder() -> None:
    """Remove the folder that `python -m` adds to the import path, unless ebpfprof is in it.

    So root imports nothing from the current folder.
    """
    ours = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    if not sys.flags.safe_path and os.path.realpath(sys.path[0]) != ours:
        del sys.path[0]


if __name__ == "__main__":
    _forget_current_folder()
    main()
