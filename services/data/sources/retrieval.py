"""Retrieves the answer for a day: conditionally, with all its pages, at the pace of the host."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from hashlib import blake2b
from math import inf
from typing import Final, NamedTuple

from diem.process.clock import Clock
from services.data.kinds.series import zone
from services.data.sources.fetch import Answer, PollFailed, PollingClient, Request, fetch, refuse_page
from services.data.sources.pacing import HostPacer
from services.data.sources.paging import Pages
from services.data.sources.request import make_request, request_key
from services.data.sources.tables import HttpConfig

UNCONDITIONAL_EVERY_S: Final = 3600.0
"""Age of a body from which it is requested in full if its only validator is a time: some servers answer 304 to all
later ones, and the clock that it is from may have been ahead."""
MAX_STATES: Final = 400
"""Requests whose last answers are remembered: those of a window of a year."""


@dataclass(slots=True)
class _Received:
    """The last stored answer to a request: its validators, when it was received, and the digest of its bodies."""

    validators: dict[str, str] = field(default_factory=dict)
    at: float = 0.0
    digest: bytes = b""


class Retrieved(NamedTuple):
    """The pages of a new answer, to be confirmed once they are stored."""

    key: str
    digest: bytes
    validators: dict[str, str]
    pages: Sequence[Answer]


class Retriever:
    """Sends the requests of a source, one at a time; remembers at most :data:`MAX_STATES` answers."""

    def __init__(self, config: HttpConfig, clock: Clock, pacer: HostPacer) -> None:
        self._config = config
        self._clock = clock
        self._pacer = pacer
        self._zone = zone(config.zone)
        self._received: dict[str, _Received] = {}
        self._last: Request | None = None
        self.sent_at = -inf
        """Monotonic time of the last request."""

    def key(self, day: date) -> str:
        """Return the request for a day without secrets: equal requests are sent once."""
        return request_key(self._config, day, self._zone)

    def redact(self, text: str) -> str:
        """Return an error with the secrets of the last request hidden."""
        return text if self._last is None else self._last.redact(text)

    def is_echoed(self, found: Retrieved) -> bool:
        """Return whether an answer has a secret of the request in it, so that errors must not quote it."""
        return self._last is not None and any(self._last.is_echoed(page.body) for page in found.pages)

    def forget(self) -> None:
        """Forget all answers: they must be stored again."""
        self._received.clear()

    async def retrieve(self, client: PollingClient, day: date, *, again: bool = False) -> Retrieved | None:
        """Return the answer for a day; None if it is the stored one, unless that must be stored ``again``.

        Raises:
            PollFailed: a secret cannot be read, or an answer is not complete and within the bounds.
            httpx.HTTPError, TimeoutError: the connection or the HTTP exchange failed.
        """
        config, key = self._config, self.key(day)
        received = _Received() if again else self._received.get(key, _Received())
        self._last = None
        pages = Pages(config, lambda extra: make_request(config, day, self._zone, extra))
        while (request := pages.request) is not None:
            self._last = request
            try:
                answer = await self._fetch(client, request, {} if config.pages else self._conditions(received))
            except PollFailed as error:
                if pages.ends(error.status):
                    break
                raise
            if answer is None:
                return None
            pages.add(answer)
        digest = blake2b(digest_size=16)
        for page in pages.answers:
            digest.update(page.body)
        found = Retrieved(key, digest.digest(), _validators(pages.answers), pages.answers)
        if found.digest == received.digest:
            self.confirm(found)
            return None
        return found

    async def _fetch(self, client: PollingClient, request: Request, conditions: dict[str, str]) -> Answer | None:
        config = self._config
        await self._pacer.wait(request.url.host, config.per_minute)
        self.sent_at = self._clock.monotonic()
        async with asyncio.timeout(config.timeout):
            answer = await fetch(client, request, conditions, max_bytes=config.max_bytes, redirects=config.redirects)
        if answer is not None and (config.mapping is None or config.mapping.format != "xml"):
            refuse_page(answer.body, request)
        return answer

    def confirm(self, found: Retrieved) -> None:
        """Remember a stored answer: a refused or unstored one must be fetched again."""
        self._received.pop(found.key, None)
        while len(self._received) >= MAX_STATES:
            del self._received[next(iter(self._received))]
        self._received[found.key] = _Received(found.validators, self._clock.monotonic(), found.digest)

    def _conditions(self, received: _Received) -> dict[str, str]:
        """Return the validators to send."""
        is_old = self._clock.monotonic() - received.at >= UNCONDITIONAL_EVERY_S
        if self._config.method != "GET" or (is_old and "If-None-Match" not in received.validators):
            return {}
        return received.validators


def _validators(pages: Sequence[Answer]) -> dict[str, str]:
    """Return the validators of an answer of one page, unless it may be truncated at a line end: JSON has brackets."""
    (page, *others) = pages
    is_whole = not page.open_ended or page.body.lstrip()[:1] in {b"{", b"["}
    return page.validators if is_whole and not others else {}
