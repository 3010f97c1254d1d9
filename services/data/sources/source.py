"""The interface of sources: claims, health, and the sink for their datasets."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import structlog

from diem.errors import DiemError
from diem.process.clock import Clock
from diem.protocol.update import iso
from services.data.errors import EndpointDeleted, StoreUnavailable, UnknownEndpoint
from services.data.kinds import SERIES, Representation, Stored
from services.data.kinds.series import WRITTEN_TOGETHER
from services.data.store.write_plan import Accepted, Change, Checkpoint, IdempotencyKey

MAX_ERROR: Final = 300
"""Maximum length of a kept error text, possibly written by the failing side."""

MAX_ERRORS: Final = 50
"""Maximum number of kept errors per attempt."""

_logger = structlog.get_logger(__name__)


class Claim(NamedTuple):
    """Endpoints reserved for one source: a single one, or all below a prefix (``/meteo`` claims ``/meteo/GR``)."""

    endpoint: str
    below: bool = False

    def covers(self, endpoint: str) -> bool:
        """Return whether ``endpoint`` is claimed."""
        return endpoint.startswith(self.endpoint + "/") if self.below else endpoint == self.endpoint


class Sink(Protocol):
    """Stores the datasets of a source."""

    async def __call__(self, representations: Sequence[Representation], /, *, source: str) -> object:
        """Store contents; return once committed. Raises DataError: they were refused, or cannot be stored."""
        ...


class ChangeSink(Protocol):
    """Stores the changes of a source, with its progress in the same transaction."""

    async def positions(self) -> dict[str, str]:
        """Return the stored position of each part; raises StoreUnavailable."""
        ...

    async def enqueue(
        self, changes: Sequence[Change], checkpoint: Checkpoint | None, *, key: IdempotencyKey | None = None
    ) -> "asyncio.Future[list[Accepted]]":
        """Queue changes, to be stored in order, all or none; return their answer to come, once there is room for them.

        Changes that follow may be queued before it. Those with the ``key`` of earlier ones get their answer. It raises:

            CheckpointMoved: they do not follow the stored position: read :meth:`positions` again.
            ChangeRefused: one of them is refused, as its index and error say.
            TooManyEndpoints: the store has no room for new endpoints.
            StoreUnavailable: the store cannot commit now; they may have been stored if its answer was lost.
        """
        ...


class Fault(StrEnum):
    """Public description of a failing source; error texts may contain names of files and hosts."""

    UNREACHABLE = "it cannot be reached or read"
    INVALID = "what it has is not valid"
    STORE = "the store cannot take what it has"
    INTERNAL = "an error of the service"
    OTHER = "the last attempt failed"


@dataclass(slots=True)
class Intake:
    """Counts of a source of records, since the start."""

    records: int = 0
    """Records applied, skipped ones included."""
    refused: int = 0
    """Records skipped, or deliveries refused, because they could not be stored."""
    last_refusal: str = ""
    """Place and reason of the last of these."""
    unverified: int = 0
    """Deliveries of a webhook without a valid signature."""
    last_unverified: str = ""
    """Reason of the last of these."""
    last_unverified_ms: int = 0
    """Its time, in Unix ms; 0: none."""
    lost: int = 0
    """Records that the origin no longer had when they were to be read."""
    last_ms: int = 0
    """Time of the last record, in Unix ms; 0: none, or unknown."""
    lag: int | None = None
    """What is still to be read, in records, of PostgreSQL in bytes; None: unknown."""
    resets: int = 0
    """Times that the origin did not have what follows the stored position, and everything was read anew."""
    stopped: tuple[str, str] | None = None
    """Part and position after the record at which the source has stopped; None: it has not."""

    def refuse(self, refusal: str) -> bool:
        """Count a refused record; return whether it is to be logged: the first, second, fourth, eighth and so on."""
        self.refused += 1
        self.last_refusal = refusal
        return self.refused & (self.refused - 1) == 0

    def status(self) -> dict[str, Any]:
        """Return the entries in the source's status."""
        return {
            "records": self.records,
            "refused": self.refused,
            "last_refusal": self.last_refusal or None,
            "unverified": self.unverified,
            "last_unverified": self.last_unverified or None,
            "last_unverified_at": iso(self.last_unverified_ms) if self.last_unverified_ms else None,
            "lost": self.lost,
            "last_record": iso(self.last_ms) if self.last_ms else None,
            "lag": self.lag,
            "resets": self.resets,
        }


@dataclass(slots=True)
class Health:
    """State of a source: counts, last success and last error; a change between ok and failing is logged once."""

    name: str
    clock: Clock
    error: str | None = None
    last_success_ms: int | None = None
    successes: int = 0
    failures: int = 0
    fault: Fault | None = None
    """The public description of :attr:`error`; None without one."""
    errors: tuple[str, ...] = ()
    """Every error of the last attempt, if several, such as one per file; at most ``MAX_ERRORS``."""
    progress: str = ""
    """Progress of a long task, such as a backfill; empty without one."""
    next_attempt_ms: int | None = None
    """Time of the next attempt, in Unix ms; None while unknown."""
    intake: Intake | None = None
    """Of a source of records."""

    def succeeded(self) -> None:
        """Record a successful poll, with or without new data."""
        self.successes += 1
        self.last_success_ms = self.clock.wall_ms()
        self.recovered()

    def recovered(self) -> None:
        """Record that nothing fails any more."""
        if self.error is not None:
            _logger.info("source works again", source=self.name)
            self.error = self.fault = None
            self.errors = ()

    def failed(self, error: str, *, times: int = 1, fault: Fault = Fault.OTHER, errors: Sequence[str] = ()) -> None:
        """Record a failed poll; the stored data stays. ``times`` is 0 for a continuing fault.

        ``error`` is for the log and the internal status, ``fault`` is public; ``errors`` are all if there are several.
        """
        self.failures += times
        error = error[:MAX_ERROR]
        if self.error is None:
            _logger.warning("source fails", source=self.name, error=error)
        self.error = error
        self.errors = tuple(each[:MAX_ERROR] for each in errors[:MAX_ERRORS])
        self.fault = fault

    def scheduled(self, wait_s: float) -> None:
        """Record the seconds until the next attempt."""
        self.next_attempt_ms = self.clock.wall_ms() + round(wait_s * 1000)

    def status(self) -> dict[str, Any]:
        """Return the source's entry in the process's status."""
        at = None if self.next_attempt_ms is None else iso(self.next_attempt_ms)
        progress = {"progress": self.progress} if self.progress else {}
        return {**self._outcome(), "next_attempt": at, **progress, **(self.intake.status() if self.intake else {})}

    def public_status(self) -> dict[str, Any]:
        """Return the entry for the public status, with the fault instead of the error's text."""
        return {**self._outcome(), "error": None if self.fault is None else self.fault.value}

    def _outcome(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ok": self.error is None and self.last_success_ms is not None,
            "error": self.error,
            "last_success": None if self.last_success_ms is None else iso(self.last_success_ms),
            "failures": self.failures,
        }


def batched(found: Sequence[Representation]) -> Iterator[Sequence[Representation]]:
    """Yield parts that are written in one transaction."""
    for start in range(0, len(found), WRITTEN_TOGETHER):
        yield found[start : start + WRITTEN_TOGETHER]


def fault_of(error: Exception) -> Fault:
    """Return the public description of an error."""
    if isinstance(error, StoreUnavailable):
        return Fault.STORE
    return Fault.INVALID if isinstance(error, DiemError) else Fault.UNREACHABLE


class ConfiguredSource(Protocol):
    """What every source has: its name, endpoints and state."""

    @property
    def name(self) -> str:
        """Name in configuration, catalogue, logs and metrics."""
        ...

    @property
    def claims(self) -> Sequence[Claim]:
        """All endpoints reserved for the source."""
        ...

    @property
    def health(self) -> Health:
        """State of the source."""
        ...


class Source(ConfiguredSource, Protocol):
    """Keeps the claimed endpoints up to date while :meth:`run` runs."""

    async def run(self, sink: Sink) -> None:
        """Work until cancelled; faults of the input are recorded in :attr:`health`, not raised."""
        ...


@runtime_checkable
class ChangeSource(ConfiguredSource, Protocol):
    """A source that reads a log of changes from where it was: a topic, a database, a broker."""

    async def consume(self, sink: ChangeSink) -> None:
        """Work until cancelled; faults of the input are recorded in :attr:`health`, not raised."""
        ...

    async def try_once(self, sink: ChangeSink) -> None:
        """Read a sample and pass it to ``sink``, which stores nothing; the outcome is in :attr:`health`."""
        ...


@runtime_checkable
class ReplayableSource(ChangeSource, Protocol):
    """A source of records whose positions have a notation for operators, such as an offset."""

    async def position_at(self, part: str, text: str) -> str:
        """Return the position of a part that a text means; raises DataError for another text."""
        ...


@runtime_checkable
class TrialSource(Source, Protocol):
    """A source that can be tried without running it."""

    async def try_once(self, sink: Sink) -> None:
        """Read everything once and pass it to ``sink``; the outcome is in :attr:`health`."""
        ...


@dataclass(frozen=True, slots=True)
class StoredState:
    """What is stored of earlier runs.

    Attributes:
        id: of the store. directory: for private files of the sources; it may be missing. current: returns the stored
        version of an endpoint, or raises DataError. names: returns the endpoints below a prefix. delete: deletes an
        endpoint, or raises DataError.
    """

    id: str
    directory: Path
    current: Callable[[str], Awaitable[Stored]]
    names: Callable[[str], Iterable[str]]
    delete: Callable[[str], Awaitable[object]]

    async def content(self, endpoint: str) -> bytes | None:
        """Return the content of a series; None if there is none. Raises StoreUnavailable."""
        try:
            found = await self.current(endpoint)
        except (UnknownEndpoint, EndpointDeleted):
            return None
        return found.content if found.media_type == SERIES else None


@runtime_checkable
class ResumingSource(Protocol):
    """A source, of either kind, that continues what is stored."""

    def attach(self, stored: StoredState) -> None:
        """Continue what is stored; called once, before it runs."""
        ...


@runtime_checkable
class InterestSource(Source, Protocol):
    """A source that polls the endpoints below a prefix that are watched."""

    prefix: str
    refused: int
    """Endpoints that are watched and not polled, because too many are."""

    @property
    def watched(self) -> int:
        """Number of endpoints that are polled."""
        ...

    def watch(self, name: str) -> bool:
        """Poll an endpoint because it is watched at one more server; False: too many are."""
        ...

    def unwatch(self, name: str) -> None:
        """End a :meth:`watch`."""
        ...

    def readmit(self) -> bool:
        """Return whether there is room for refused endpoints, which are to be watched again."""
        ...
