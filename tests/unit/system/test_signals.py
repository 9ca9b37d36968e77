"""Signals are counted, and interrupt only interruptible code."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

DEADLINE_S = 60
BEGINNING = """
import os, signal, threading
from ebpfprof.system import signals
from ebpfprof.system.signals import Deferred, Signals, interruptible, check

def send(number=signal.SIGTERM):
    os.kill(os.getpid(), number)

def is_raised(work):
    try:
        work()
    except KeyboardInterrupt:
        return True
    return False

signals.install()
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own: it changes what signals do."""
    return subprocess.run(
        [sys.executable, "-c", BEGINNING + dedent(code)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@pytest.mark.parametrize(
    "code",
    [
        # What may be interrupted ends there.
        "assert is_raised(lambda: interruptible(lambda: (send(), print('too late'))))",
        # What swallows the exception continues, but what follows does not.
        """
        def swallow():
            try:
                send()
            except:
                print("swallowed")
        assert is_raised(lambda: interruptible(swallow))
        assert is_raised(check)
        """,
        # The same where Python itself swallows it, and says so by default.
        """
        class Noisy:
            def __del__(self):
                send()
        assert is_raised(lambda: interruptible(lambda: Noisy() and None))
        """,
        # What was half made can't be unmade, which Python would say, too.
        """
        class Half:
            def __init__(self):
                send()
                self.whole = True
            def __del__(self):
                assert self.whole
        assert is_raised(lambda: interruptible(Half))
        """,
        # It comes where nothing may be interrupted.
        """
        send()
        assert is_raised(check)
        assert is_raised(lambda: interruptible(lambda: print("too late")))
        """,
        # A part of what may be interrupted must not be.
        """
        done = []
        def work():
            with Deferred():
                send()
                done.append("whole")
            print("too late")
        assert is_raised(lambda: interruptible(work))
        assert done
        """,
        # A part of what must not be interrupted may be.
        """
        with Deferred():
            assert is_raised(lambda: interruptible(lambda: (send(), print("too late"))))
        """,
        # A consequential error is not the one reported.
        """
        def fail():
            try:
                send()
            except:
                raise ImportError("of half a module") from None
        assert is_raised(lambda: interruptible(fail))
        """,
        # The first one ends a recording, the second one aborts.
        """
        with Signals() as recording:
            recording.end_recording_only()
            assert not recording.came
            interruptible(send)
            assert recording.came
            check()
            send(signal.SIGHUP)
            assert is_raised(check)
        check()
        """,
        # One that came before there was something to write.
        """
        with Signals() as recording:
            send()
            assert is_raised(recording.end_recording_only)
        """,
        # Another thread interrupts neither itself nor the main thread.
        """
        done = []
        def work():
            send()
            while not signals._state.came:
                pass
            check()
            done.append("whole")
        thread = threading.Thread(target=lambda: interruptible(work))
        with Deferred():
            thread.start()
            thread.join()
        assert done
        assert is_raised(check)
        """,
    ],
)
def test_signals_abort_end_or_are_counted(code: str) -> None:
    done = run(code)
    assert (done.returncode, done.stderr) == (0, "")
    assert "late" not in done.stdout


def test_other_lost_exceptions_are_still_reported() -> None:
    done = run("class Bad:\n    def __del__(self): raise ValueError\nBad()")
    assert "ValueError" in done.stderr


def test_signals_blocked_by_the_parent_are_counted() -> None:
    """As `env --block-signal` does, so that none comes before signals are counted."""
    done = run(
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, signals.NUMBERS)
        send()
        check()
        signals.install()
        assert is_raised(check)
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
