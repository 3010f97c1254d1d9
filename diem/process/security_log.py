"""Security events of a process: one structured log line each, summarised when there are many, and a counter per kind.

Anybody can cause refusals, so their lines are bounded: of one kind, code, address and key the first event is logged at
once, later ones as a count each minute. Refused clients also cause a warning, at most one per minute and cause, with
the remedy: it is for the console of ``diem up``, and has no ``kind``. Changes made by holders of keys (new keys, plans,
scaling) have a line each. Lines have the field ``kind``, and if known ``address``, ``key_name``, ``origin``, ``code``
and ``detail``; they never contain a key or a token. docs/operations.md section 3 lists the kinds and the alerts.

The module owns one log for the process, as :mod:`diem.process.metrics` does for the metrics: :func:`record`,
:func:`refuse` and :func:`audit` are called only at the point of a refusal or change, on the event loop.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import structlog

from diem.process import metrics
from diem.process.limits import address_key

SUMMARY_EVERY_S: Final = 60.0
MAX_SERIES: Final = 256
"""Maximum number of distinct combinations of kind, code, address and key; further events are counted per kind."""
MAX_CHARACTERS: Final = 200
"""Longest client-supplied text in a line."""
UNIX_PEER: Final = "unix"
"""Address in lines about peers on a Unix socket of this machine."""


class SecurityEvent(StrEnum):
    """Kinds of events: label of the metric, and field ``kind`` of the lines."""

    HANDSHAKE_REFUSED = "handshake_refused"
    """A WebSocket client was refused; ``code`` is the HTTP status, 0 for a connection that never sent a request."""
    WRONG_INTERNAL_KEY = "wrong_internal_key"
    WRONG_WRITE_KEY = "wrong_write_key"
    WRONG_OPERATOR_KEY = "wrong_operator_key"
    """A sign-in at the operator page."""
    WRONG_API_KEY = "wrong_api_key"
    REVOKED_KEY = "revoked_key"
    """A revoked or expired key, with the right secret."""
    WRONG_TOKEN = "wrong_token"  # noqa: S105 - a label
    """An invalid client token; ``code`` is the close code or the HTTP status."""
    WRONG_SIGNATURE = "wrong_signature"
    """A delivery of a webhook that its secret did not sign."""
    FORBIDDEN = "forbidden"
    """A valid key or token without the right to the request; ``code`` is the problem document's."""
    RATE_EXCEEDED = "rate_exceeded"
    """A rate or quota was exceeded; ``code`` is a close code or an HTTP status."""
    WRITES = "writes"
    """Changes made through the API, by key."""
    KEY_CREATED = "key_created"
    KEY_REVOKED = "key_revoked"
    PLAN_SUBMITTED = "plan_submitted"
    PLAN_APPLIED = "plan_applied"
    PLAN_ROLLED_BACK = "plan_rolled_back"
    SCALED = "scaled"


_WARNINGS: Final = frozenset(
    {
        SecurityEvent.WRONG_INTERNAL_KEY,
        SecurityEvent.WRONG_OPERATOR_KEY,
        SecurityEvent.REVOKED_KEY,
        SecurityEvent.SCALED,
    }
)
"""Kinds logged as warnings, worth a look even once; others are logged as information."""


@dataclass(slots=True)
class _Series:
    """Events of one kind, code, address and key since their last line."""

    last: tuple[str, str, str, str | int, str]
    """Address, key, origin, code and detail of the last one."""
    count: int = 0
    changes: int = 0


@dataclass(slots=True)
class _Warned:
    """Refusals of one cause since the last warning about it."""

    text: str
    """Text of the first refusal since the last summary; empty without one."""
    count: int = 0


@dataclass(slots=True)
class SecurityLog:
    """The events of one process; used on the event loop only.

    At most :data:`MAX_SERIES` combinations get their own lines in a minute. Events beyond are counted in one line per
    kind, and in :attr:`unattributed`.
    """

    counts: Counter[SecurityEvent] = field(default_factory=Counter)
    unattributed: int = 0
    """Events that were logged as a count of their kind only."""
    _series: dict[tuple[SecurityEvent, str, str, str], _Series] = field(default_factory=dict)
    _overflow: Counter[SecurityEvent] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    """Refused clients by cause, of which there is a handful."""
    _warned: dict[str, _Warned] = field(default_factory=dict)
    """By cause."""

    def record(
        self,
        kind: SecurityEvent,
        *,
        address: str = "",
        key_name: str = "",
        origin: str = "",
        code: str | int = "",
        detail: str = "",
        changes: int = 0,
    ) -> None:
        """Count an event, and log it at once if it is the first of its series in the last minute.

        Args:
            kind: the kind of event.
            address: of the client; IPv6 addresses of one /64 are one series.
            key_name: name of the key, never the key.
            origin: ``Origin`` header of the request.
            code: HTTP status, close code or error code of the refusal.
            detail: anything else that helps, such as the path.
            changes: datasets that were written.
        """
        self.counts[kind] += 1
        # Writers are distinguished by key: one writing from many addresses is one series.
        which = (kind, str(code), "" if kind is SecurityEvent.WRITES else address_key(address), key_name)
        series, last = self._series.get(which), (address, key_name, origin, code, detail)
        if series is None:
            if len(self._series) >= MAX_SERIES:
                self.unattributed += 1
                self._overflow[kind] += 1
                return
            self._series[which] = _Series(last)
            _write(kind, {**_fields(*last), "count": 1, **({"changes": changes} if changes else {})})
            return
        series.count += 1
        series.changes += changes
        series.last = last

    def refuse(
        self, kind: SecurityEvent, cause: str, *, address: str, code: str | int, detail: str, origin: str = ""
    ) -> None:
        """Record the refusal of a client, with a warning unless this cause had one in the last minute.

        Args:
            kind: kind of the event.
            cause: groups refusals into one warning.
            address: of the client.
            code: HTTP status, or code of the problem document.
            detail: the reason and the remedy.
            origin: ``Origin`` header of the request.
        """
        self.record(kind, address=address, origin=origin, code=code, detail=detail)
        self.refusals[str(cause)] += 1
        text = f"refused {address or UNIX_PEER}: {_cut(detail)}"
        warned = self._warned.get(cause)
        if warned is None:
            self._warned[cause] = _Warned(text)
            _logger.warning(text)
        else:
            # The first text of the minute, lest others replace it before it is read.
            warned.text = warned.text or text
            warned.count += 1

    def audit(self, kind: SecurityEvent, **fields: object) -> None:
        """Count and log a change made by the holder of a key; each has a line."""
        self.counts[kind] += 1
        _write(kind, {name: _cut(value) if isinstance(value, str) else value for name, value in fields.items()})

    def summarise(self) -> None:
        """Log the counts since the last call, and forget the series and causes without events."""
        for which, series in list(self._series.items()):
            if not series.count:
                del self._series[which]
                continue
            counted = {"count": series.count, **({"changes": series.changes} if series.changes else {})}
            _write(which[0], {**_fields(*series.last), **counted})
            series.count = series.changes = 0
        for kind, count in self._overflow.items():
            _write(kind, {"detail": "further series", "count": count})
        self._overflow.clear()
        for cause, warned in list(self._warned.items()):
            if warned.count:
                _logger.warning(warned.text, count=warned.count)
                warned.text, warned.count = "", 0
            else:
                del self._warned[cause]

    def samples(self) -> Iterable[metrics.Sample]:
        """Return the events by kind, including zeros: a rate needs a first sample."""
        for kind in SecurityEvent:
            yield metrics.SECURITY_EVENTS.sample(self.counts[kind], kind)
        yield metrics.SECURITY_UNATTRIBUTED.sample(self.unattributed)


def _fields(address: str, key_name: str, origin: str, code: str | int, detail: str) -> dict[str, Any]:
    found = {"address": address, "key_name": key_name, "origin": origin, "code": code, "detail": detail}
    return {name: _cut(value) if isinstance(value, str) else value for name, value in found.items() if value != ""}


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}..."


def _write(kind: SecurityEvent, fields: dict[str, Any]) -> None:
    level = logging.WARNING if kind in _WARNINGS else logging.INFO
    _logger.log(level, kind.replace("_", " "), kind=str(kind), **fields)


_logger = structlog.get_logger("security")
_process_log: Final = SecurityLog()
record = _process_log.record
refuse = _process_log.refuse
audit = _process_log.audit
summarise = _process_log.summarise
samples = _process_log.samples


def refused() -> dict[str, int]:
    """Return the number of clients refused since the start, by cause, for ``/status``."""
    return dict(_process_log.refusals)


@contextlib.asynccontextmanager
async def summaries() -> AsyncIterator[None]:
    """Log the counts of each minute while the block runs, and the remainder at its end."""
    running = asyncio.create_task(_summarise_every_minute())
    try:
        yield
    finally:
        running.cancel()
        summarise()


async def _summarise_every_minute() -> None:
    while True:
        await asyncio.sleep(SUMMARY_EVERY_S)
        summarise()
