"""huggingface_hub's own client with patience of one kind for all it asks: retries, pauses, and a budget of requests.

The library retries some requests by itself, each in its own way and without an end in common. Its HTTP client is
replaced by one that settles every answer before the library sees it: what may be otherwise next time is asked again
here, what will not raises Unfetched, with the verdict that it means.
"""

from __future__ import annotations

import functools
import re
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx2
from huggingface_hub import constants, get_session, set_client_factory
from huggingface_hub.utils import parse_ratelimit_headers
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from harness.cases import Verdict
from harness.hub.index import Unfetched

_REPO = re.compile(r"(?:/api/models)?/([^/]+(?:/[^/]+)??)(?:/(?:resolve|revision|tree)/.*)?")
_FORBIDDEN, _ABSENT, _TOO_MANY = (401, 403), (404, 410), 429
_NOT_NOW = (408, 425)
"""Server's own words for "not now", beside 5xx."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the Hub is waited for, all in seconds but the first two and the last.

    `tries` is how often a request that fails for now is made in all. An entry may make `requests` requests, and three
    more for each file. Pauses grow from `first_wait` to `longest_wait`, with jitter of up to `first_wait`; a
    Retry-After of up to `longest_retry_after` is obeyed, by everyone, and a longer one gives the entry up.
    `answer` is the longest silence, `grace` the time after which a file has to come at `slowest` bytes per second.
    """

    tries: int = 5
    requests: int = 20
    first_wait: float = 1.0
    longest_wait: float = 30.0
    longest_retry_after: float = 330.0  # the Hub counts in windows of 300 s
    connect: float = 10.0
    answer: float = 30.0
    grace: float = 30.0
    slowest: int = 10_000


class Stopped(RuntimeError):
    """Nobody waits for the answer any more."""


class _NotNow(Unfetched):
    """It may be had later: `after` so many seconds where the Hub says so."""

    def __init__(self, verdict: Verdict, message: str, after: float | None = None) -> None:
        super().__init__(verdict, message)
        self.after = after


@dataclass(slots=True)
class Visit:
    """What one entry has asked of the Hub so far, and may still ask.

    `received` counts the bytes of files, of which there may be `most`; `broken` the bodies that broke off.
    """

    allowed: int
    stopped: threading.Event
    requests: int = 0
    broken: int = 0
    received: int = 0
    most: int | None = None
    moved_to: str = ""


_VISIT: ContextVar[Visit | None] = ContextVar("visit", default=None)


@dataclass
class Gate:
    """Where all threads wait while the Hub wants to be left alone."""

    _opens: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self, seconds: float) -> None:
        """Let nobody through for so long."""
        with self._lock:
            self._opens = max(self._opens, time.monotonic() + seconds)

    def wait(self) -> None:
        """Return when it is open."""
        while (left := self._opens - time.monotonic()) > 0:
            _sleep(min(left, 1.0))
            if (visit := _VISIT.get()) is not None and visit.stopped.is_set():
                return


@contextmanager
def visiting(patience: Patience, stopped: threading.Event) -> Iterator[Visit]:
    """Count what this thread asks of the Hub in here as one entry's, and ask nothing more once it is `stopped`."""
    visit = Visit(patience.requests, stopped)
    token = _VISIT.set(visit)
    try:
        yield visit
    finally:
        _VISIT.reset(token)


@contextmanager
def patient(patience: Patience) -> Iterator[None]:
    """Have the library ask the Hub with `patience` in here, from all threads."""
    gate = Gate()
    # Xet's own client and telemetry would ask outside the budget, and with other patience.
    before = constants.HF_HUB_DISABLE_XET, constants.HF_HUB_DISABLE_TELEMETRY
    constants.HF_HUB_DISABLE_XET = constants.HF_HUB_DISABLE_TELEMETRY = True
    own = _own_hooks()
    set_client_factory(lambda: _Client(patience, gate, own))
    try:
        yield
    finally:
        plain = {"event_hooks": {"request": own}, "follow_redirects": True, "timeout": None}
        set_client_factory(lambda: httpx2.Client(**plain))
        constants.HF_HUB_DISABLE_XET, constants.HF_HUB_DISABLE_TELEMETRY = before


@functools.cache
def _own_hooks() -> list[Any]:
    """What the library itself does before every request: it keeps to HF_HUB_OFFLINE, among other things."""
    return get_session().event_hooks["request"]


@functools.cache
def _trusted() -> ssl.SSLContext:
    """The certificates that are trusted; reading them takes longer than most requests."""
    return httpx2.create_ssl_context()


class _Client(httpx2.Client):
    """Makes each request until it is settled."""

    def __init__(self, patience: Patience, gate: Gate, own: list[Any]) -> None:
        hooks = {"request": [*own, self._counted], "response": [self._seen]}
        super().__init__(event_hooks=hooks, follow_redirects=True, timeout=None, verify=_trusted())
        self._patience, self._gate = patience, gate
        longest, step = patience.longest_wait, patience.first_wait
        self._jitter = wait_exponential_jitter(max=longest, multiplier=step, jitter=step)

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        silence = self._patience.answer
        timeout = httpx2.Timeout(silence, connect=self._patience.connect, pool=None)
        request.extensions = {**request.extensions, "timeout": timeout.as_dict()}
        attempts = Retrying(
            stop=stop_after_attempt(self._patience.tries),
            wait=self._pause,
            retry=retry_if_exception_type(_NotNow),
            sleep=_sleep,
            reraise=True,
        )
        return attempts(self._settled, request, options)

    def _settled(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        where = _where(request.url)
        try:
            response = super().send(request, **options)
        except httpx2.TimeoutException as error:
            raise _NotNow(Verdict.HUB_TIMEOUT, f"{where}: no answer ({type(error).__name__})") from error
        except httpx2.ConnectError as error:
            raise _NotNow(Verdict.HUB_TIMEOUT, f"{where}: cannot be reached: {error}") from error
        except httpx2.TransportError as error:
            raise _NotNow(Verdict.HUB_ERROR, f"{where}: the connection broke: {error}") from error
        except httpx2.TooManyRedirects as error:
            raise Unfetched(Verdict.HUB_ERROR, f"{where}: it redirects in circles") from error
        if response.status_code >= 400:
            response.close()
            raise self._refusal(response)
        visit = _VISIT.get()
        if visit is not None and options.get("stream"):
            response.stream = _Watched(response.stream, visit, self._patience, where)
        return response

    def _counted(self, request: httpx2.Request) -> None:
        """Before every request, redirected ones too: wait for the gate, and keep within the budget."""
        self._gate.wait()
        visit = _VISIT.get()
        if visit is None:
            return
        if visit.stopped.is_set():
            raise Stopped
        if visit.requests >= visit.allowed:
            raise Unfetched(Verdict.HUB_ERROR, f"gave up after {visit.requests} requests: {_where(request.url)}")
        visit.requests += 1

    def _seen(self, response: httpx2.Response) -> None:
        """After every answer: a pause where nothing is left of what the Hub allows, and a new name where it has one."""
        limit = parse_ratelimit_headers(response.headers)
        if limit is not None and limit.remaining == 0 and limit.reset_in_seconds <= self._patience.longest_retry_after:
            self._gate.close(limit.reset_in_seconds)
        visit = _VISIT.get()
        if visit is None or not response.is_redirect:
            return
        asked = response.request.url
        target = asked.join(response.headers.get("location", ""))
        if target.host == asked.host and target.port == asked.port:
            old, new = _REPO.fullmatch(asked.path), _REPO.fullmatch(target.path)
            if old and new and old[1] != new[1]:
                visit.moved_to = new[1]

    def _refusal(self, response: httpx2.Response) -> Unfetched:
        """What an answer that is an error means."""
        status, code = response.status_code, response.headers.get("x-error-code", "")
        said = response.headers.get("x-error-message", "")
        line = f"{_where(response.request.url)}: {status} {code or response.reason_phrase}{f': {said}' if said else ''}"
        if status in _ABSENT or code in ("RepoNotFound", "RevisionNotFound", "EntryNotFound") or "disabled" in said:
            return Unfetched(Verdict.GONE, line)
        if status in _FORBIDDEN:
            return Unfetched(Verdict.GATED, f"{line}; ask for access there, and set HF_TOKEN")
        if status != _TOO_MANY and status < 500 and status not in _NOT_NOW:
            return Unfetched(Verdict.HUB_ERROR, line)
        verdict = Verdict.RATE_LIMITED if status == _TOO_MANY else Verdict.HUB_ERROR
        after = retry_after(response.headers)
        if after is not None and after > self._patience.longest_retry_after:
            return Unfetched(verdict, f"{line}; it wants to be asked again after {after:.0f} s")
        if after is not None and status == _TOO_MANY:
            self._gate.close(after)
        return _NotNow(verdict, line, after)

    def _pause(self, state: RetryCallState) -> float:
        """Seconds until the next try: what the Hub said, or longer each time; never the same for two threads."""
        fault = state.outcome.exception() if state.outcome else None
        waits = self._jitter(state)
        return max(fault.after, waits) if isinstance(fault, _NotNow) and fault.after is not None else waits


class _Watched(httpx2.SyncByteStream):
    """The body of an answer: counted, not too slow, and broken off only so often.

    The library goes on where a body broke off, without an end as long as each try brings a byte more.
    """

    def __init__(self, stream: Any, visit: Visit, patience: Patience, where: str) -> None:
        self._stream, self._visit, self._patience, self._where = stream, visit, patience, where

    def __iter__(self) -> Iterator[bytes]:
        started, received = time.monotonic(), 0
        try:
            for chunk in self._stream:
                if self._visit.stopped.is_set():
                    raise Stopped
                received += len(chunk)
                self._visit.received += len(chunk)
                if self._visit.most is not None and self._visit.received > self._visit.most:
                    more = f"{self._where}: larger than the {self._visit.most:,} bytes that it may have"
                    raise Unfetched(Verdict.HUB_ERROR, more)
                seconds = time.monotonic() - started
                if seconds > self._patience.grace and received < self._patience.slowest * seconds:
                    slow = f"{received / seconds:.0f} bytes per second"
                    raise Unfetched(Verdict.HUB_TIMEOUT, f"{self._where}: comes too slowly, {slow}")
                yield chunk
        except httpx2.TimeoutException as error:
            raise self._again(Verdict.HUB_TIMEOUT, "stops in the middle", error) from error
        except httpx2.TransportError as error:
            raise self._again(Verdict.TRUNCATED, "breaks off", error) from error

    def close(self) -> None:
        self._stream.close()

    def _again(self, verdict: Verdict, what: str, error: httpx2.TransportError) -> Exception:
        self._visit.broken += 1
        if self._visit.broken >= self._patience.tries:
            return Unfetched(verdict, f"{self._where}: {what}, {self._visit.broken} times")
        return httpx2.RemoteProtocolError(str(error))  # the one that the library always goes on after


def retry_after(headers: Any) -> float | None:
    """Seconds that a Retry-After or RateLimit header asks for (RFC 9110, 10.2.3), None where there is none."""
    limit = parse_ratelimit_headers(headers)
    if limit is not None and limit.remaining == 0:
        return float(limit.reset_in_seconds)
    value = headers.get("retry-after", "").strip()
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _sleep(seconds: float) -> None:
    """Sleep, but no longer than somebody waits for the answer."""
    visit = _VISIT.get()
    if visit is None:
        time.sleep(seconds)
    else:
        visit.stopped.wait(seconds)


def _where(url: httpx2.URL) -> str:
    """An address for people: no query, which may be signed, and no user."""
    parts = urlsplit(str(url))
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
