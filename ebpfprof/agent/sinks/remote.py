"""Sends windows to a backend: one request per profile, or several because of a backend's limits.

Delivered parts of a window are not sent again: backends would count them twice.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from ebpfprof.agent.sinks.http_client import Answer, HttpClient
from ebpfprof.agent.sinks.series import sent_profile
from ebpfprof.agent.sinks.sink import Delivery, Item, Refused, RetryLater
from ebpfprof.errors import InvalidProfile
from ebpfprof.profile.model import Profile
from ebpfprof.profile.service import ServiceWindow

RETRIED: Final = frozenset({401, 403, 408, 429, 502, 503, 504})
"""Statuses after which the same request may succeed later. 401 and 403: an expired token may be
replaced. Any other status refuses the profile."""
_SERVER_ERROR: Final = 500
_MOST_ATTEMPTS: Final = 5
"""How often a request is sent if the status is 500, which the contents may have caused."""


@dataclass(frozen=True, slots=True)
class WindowPart:
    """A profile of a window, or a part of it; `number` counts from 0."""

    window: ServiceWindow
    kind: str
    profile: Profile
    number: int = 0


class Backend(Protocol):
    """What differs between backends."""

    @property
    def path(self) -> str:
        """The path of its API."""

    @property
    def most_samples(self) -> int:
        """The maximum number of samples of a request."""

    @property
    def most_bytes(self) -> int:
        """The maximum size of a message(), which is what backends limit."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of all requests."""

    @property
    def retries_500(self) -> bool:
        """Whether to repeat a request after the status 500, a few times."""

    def message(self, part: WindowPart) -> bytes:
        """A part, not compressed. Raises InvalidProfile for a part that it must never get."""

    def body(self, part: WindowPart, message: bytes) -> bytes:
        """The body of the request for a part, with its message()."""

    def judge(self, answer: Answer) -> None:
        """Check a response with a status of 2xx. Raises Refused if it did not accept everything."""


class RemoteDelivery:
    """A Delivery to a backend."""

    def __init__(self, client: HttpClient, backend: Backend) -> None:
        self._client, self._backend = client, backend
        self._window: tuple[object, ...] = ()
        self._left: deque[WindowPart] = deque()
        self._refusals: list[Refused] = []
        self._attempts = 0

    def deliver(self, item: Item) -> None:
        """Send the unsent parts of a window. Raises RetryLater; Refused after the last part."""
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
        """Nothing to do."""

    def go_on(self, before: Delivery) -> None:
        """Continue the window of a predecessor with the parts that it has not sent."""
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
            except Exception as error:  # one bad profile must not block the others
                self._refusals.append(_invalid(kind, error))

    def _send(self, part: WindowPart) -> tuple[WindowPart, ...]:
        """Send a part; if it is too large, return its halves instead."""
        is_one = len(part.profile.samples) == 1
        if len(part.profile.samples) > self._backend.most_samples and not is_one:
            return _halves(part)
        try:
            message = self._backend.message(part)
            if len(message) > self._backend.most_bytes and not is_one:
                return _halves(part)
            body = self._backend.body(part, message)
        except Exception as error:  # whatever it is: this profile is refused, the others are sent
            raise _invalid(part.kind, error) from error
        self._judge(self._client.post(body, self._backend.headers))
        return ()

    def _judge(self, answer: Answer) -> None:
        is_again = answer.status == _SERVER_ERROR and self._backend.retries_500
        self._attempts += is_again
        if is_again and self._attempts < _MOST_ATTEMPTS:
            raise RetryLater(_why(answer), answer.after_s)
        accept(answer, self._backend.judge)


def accept(answer: Answer, judge: Callable[[Answer], None]) -> None:
    """`judge` a response with a status of 2xx; another raises Refused, or RetryLater."""
    status = answer.status
    if 200 <= status < 300:
        judge(answer)
        return
    if status in RETRIED:
        raise RetryLater(_why(answer), answer.after_s)
    if 300 <= status < 400:
        place = f" and refers to {answer.location}" if answer.location else ""
        raise Refused(f"the status is {status}{place}: set url to the new address", "moved")
    raise Refused(_why(answer), "server_error" if status >= 500 else "refused")


def _why(answer: Answer) -> str:
    return f"the status is {answer.status}: {answer.text}".removesuffix(": ")


def _invalid(kind: str, error: Exception) -> Refused:
    """The refusal of a profile that can't be turned into a request."""
    shown = "" if isinstance(error, InvalidProfile) else f"{type(error).__name__}: "
    return Refused(f"{kind}: {shown}{error}", "invalid")


def require_object(answer: Answer, name: str) -> None:
    """Raise Refused unless a response is a JSON object, as this backend sends."""
    try:
        is_object = isinstance(json.loads(answer.body), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise Refused(f"the response is not from {name}: {answer.text}", "bad_answer")


def _key(window: ServiceWindow) -> tuple[object, ...]:
    """Identifies a window, also after it was read back from the ring."""
    return window.pid, window.process_start_ns, window.start_s, window.end_s


def _halves(part: WindowPart) -> tuple[WindowPart, WindowPart]:
    samples = part.profile.samples
    middle = len(samples) // 2
    first, second = (replace(part.profile, samples=s) for s in (samples[:middle], samples[middle:]))
    number = 2 * part.number
    return replace(part, profile=first, number=number + 1), replace(
        part, profile=second, number=number + 2
    )
