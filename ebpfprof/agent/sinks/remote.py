"""Sends windows to a backend: a request for each profile, in parts where a backend has limits.

What was delivered of a window is not sent again: backends would count it twice.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from ebpfprof.agent.sinks.http_client import Answer, HttpClient
from ebpfprof.agent.sinks.series import sent_profile
from ebpfprof.agent.sinks.sink import Delivery, Item, Refused, RetryLater
from ebpfprof.errors import InvalidProfile
from ebpfprof.profile.model import Profile
from ebpfprof.profile.service import ServiceWindow

RETRIED: Final = frozenset({401, 403, 408, 429, 502, 503, 504})
"""Answers after which the same request may succeed later. 401 and 403: an expired token may be
replaced. Any other refuses the profile."""
_SERVER_ERROR: Final = 500
_MOST_ATTEMPTS: Final = 5
"""How often a request is sent that a backend answers with 500, which may be due to its contents."""


@dataclass(frozen=True, slots=True)
class WindowPart:
    """A profile of a window, or a part of it, which counts from 0."""

    window: ServiceWindow
    kind: str
    profile: Profile
    number: int = 0


@dataclass(frozen=True, slots=True)
class PushRequest:
    """A body with its headers. `size` is what counts against the backend's limit, in bytes."""

    body: bytes
    headers: Mapping[str, str]
    size: int


class Backend(Protocol):
    """What differs between backends."""

    @property
    def path(self) -> str:
        """The path of its interface."""

    @property
    def most_samples(self) -> int:
        """How many samples it takes in a request."""

    @property
    def most_bytes(self) -> int:
        """How large a request it takes."""

    @property
    def retries_500(self) -> bool:
        """Whether a request that it answers with 500 is tried again, a few times."""

    def request(self, part: WindowPart) -> PushRequest:
        """The request for a part. Raises InvalidProfile for what it must never get."""

    def judge(self, answer: Answer) -> None:
        """Look at an answer with a status of 2xx. Raises Refused if it did not take all."""


class RemoteDelivery:
    """A Delivery to a backend."""

    def __init__(self, client: HttpClient, backend: Backend) -> None:
        self._client, self._backend = client, backend
        self._window: tuple[object, ...] = ()
        self._left: deque[WindowPart] = deque()
        self._refusals: list[Refused] = []
        self._attempts = 0

    def deliver(self, item: Item) -> None:
        """Send what was not sent yet of a window. Raises RetryLater; Refused, once all was sent."""
        if not isinstance(item, ServiceWindow):
            return
        if _key(item) != self._window:
            self._begin(item)
        while self._left:
            part = self._left[0]
            halves: tuple[WindowPart, ...] = ()
            try:
                halves = self._send(part)
            except Refused as error:
                self._refusals.append(error)
            self._left.popleft()
            self._left.extendleft(reversed(halves))
            self._attempts = 0
        self._window = ()
        for refused in self._refusals:
            raise refused

    def beat(self) -> None:
        """There is nothing to do."""

    def go_on(self, before: Delivery) -> None:
        """Send of the window that another one was sending only what that did not."""
        if isinstance(before, RemoteDelivery):
            self._window, self._attempts = before._window, before._attempts
            self._left, self._refusals = before._left, before._refusals

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _begin(self, window: ServiceWindow) -> None:
        self._window, self._attempts = _key(window), 0
        self._left.clear()
        self._refusals.clear()
        for kind in window.profiles:
            try:
                if profile := sent_profile(window, kind):
                    self._left.append(WindowPart(window, kind, profile))
            except Exception as error:  # one bad profile must not hold up all others
                self._refusals.append(_invalid(kind, error))

    def _send(self, part: WindowPart) -> tuple[WindowPart, ...]:
        """Send a part; if it is too large, return its halves instead."""
        is_one = len(part.profile.samples) == 1
        if len(part.profile.samples) > self._backend.most_samples and not is_one:
            return _halves(part)
        try:
            request = self._backend.request(part)
        except Exception as error:
            raise _invalid(part.kind, error) from error
        if request.size > self._backend.most_bytes and not is_one:
            return _halves(part)
        self._judge(self._client.post(request.body, request.headers))
        return ()

    def _judge(self, answer: Answer) -> None:
        status = answer.status
        if 200 <= status < 300:
            self._backend.judge(answer)
            return
        why = f"it answers {status}: {answer.text}".removesuffix(": ")
        is_again = status == _SERVER_ERROR and self._backend.retries_500
        self._attempts += is_again
        if status in RETRIED or (is_again and self._attempts < _MOST_ATTEMPTS):
            raise RetryLater(why, answer.after_s)
        if 300 <= status < 400:
            place = f", and refers to {answer.location}" if answer.location else ""
            raise Refused(f"it answers {status}{place}: write the new address into url", "moved")
        raise Refused(why, "server_error" if status >= 500 else "refused")


def _invalid(kind: str, error: Exception) -> Refused:
    """What becomes of a profile of which no request can be made."""
    shown = "" if isinstance(error, InvalidProfile) else f"{type(error).__name__}: "
    return Refused(f"{kind}: {shown}{error}", "invalid")


def require_object(answer: Answer, name: str) -> None:
    """Raise Refused unless an answer is an object in JSON, as those of this backend are."""
    try:
        is_one = isinstance(json.loads(answer.body), dict)
    except (ValueError, RecursionError):
        is_one = False
    if not is_one:
        raise Refused(f"its answer is not one of {name}: {answer.text}", "bad_answer")


def _key(window: ServiceWindow) -> tuple[object, ...]:
    """What tells windows apart, also one that was read from the ring again."""
    return window.pid, window.process_start_ns, window.start_s, window.end_s


def _halves(part: WindowPart) -> tuple[WindowPart, WindowPart]:
    samples = part.profile.samples
    middle = len(samples) // 2
    first, second = (replace(part.profile, samples=s) for s in (samples[:middle], samples[middle:]))
    number = 2 * part.number
    return replace(part, profile=first, number=number + 1), replace(
        part, profile=second, number=number + 2
    )
