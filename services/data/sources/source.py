"""The seam of every source: what it claims, how it is doing, and how it hands on what it found."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

import structlog

from diem.errors import DiemError
from diem.process.clock import Clock
from diem.protocol.update import iso
from services.data.datasets import Dataset
from services.data.errors import StoreUnavailable

MAX_ERROR: Final = 300
"""Characters of an error that are kept: what failed may have written it."""

_logger = structlog.get_logger(__name__)


class Claim(NamedTuple):
    """What a source keeps: one endpoint, or everything below a prefix (``/meteo`` claims ``/meteo/GR``)."""

    endpoint: str
    below: bool = False

    def covers(self, endpoint: str) -> bool:
        """Whether ``endpoint`` is claimed."""
        return endpoint.startswith(self.endpoint + "/") if self.below else endpoint == self.endpoint


class Sink(Protocol):
    """Where a source puts datasets: committed when it returns, unchanged ones included."""

    async def __call__(self, datasets: Sequence[Dataset], *, source: str) -> object:
        """Store datasets; raises DataError when they were refused or the store cannot commit."""
        ...


class Fault(StrEnum):
    """What everybody may know of a source that fails. The text of an error may have names of files and hosts."""

    UNREACHABLE = "it cannot be reached or read"
    INVALID = "what it has is not valid"
    STORE = "the store cannot take what it has"
    INTERNAL = "an error of the service"
    OTHER = "the last attempt failed"


@dataclass(slots=True)
class Health:
    """How a source is doing; says so in the log once per change of state."""

    name: str
    clock: Clock
    error: str | None = None
    last_success_ms: int | None = None
    successes: int = 0
    failures: int = 0
    fault: Fault | None = None
    """What is wrong, in words for everybody; None when nothing is."""

    def succeeded(self) -> None:
        """A poll ended well, whether or not there was news."""
        self.successes += 1
        self.last_success_ms = self.clock.wall_ms()
        if self.error is not None:
            _logger.info("source works again", source=self.name)
            self.error = self.fault = None

    def failed(self, error: str, *, times: int = 1, fault: Fault = Fault.OTHER) -> None:
        """A poll failed: the last good data stays. ``times`` is 0 for a fault that only goes on.

        ``error`` is for the log and the internal status, ``fault`` for everybody.
        """
        self.failures += times
        error = error[:MAX_ERROR]
        if self.error is None:
            _logger.warning("source fails", source=self.name, error=error)
        self.error = error
        self.fault = fault

    def status(self) -> dict[str, Any]:
        """The source's entry in the process's status."""
        return {
            "name": self.name,
            "ok": self.error is None and self.last_success_ms is not None,
            "error": self.error,
            "last_success": None if self.last_success_ms is None else iso(self.last_success_ms),
            "failures": self.failures,
        }

    def public_status(self) -> dict[str, Any]:
        """The same for everybody: with words of ours for the error."""
        return {**self.status(), "error": None if self.fault is None else self.fault.value}


def fault_of(error: Exception) -> Fault:
    """What everybody may know of an error."""
    if isinstance(error, StoreUnavailable):
        return Fault.STORE
    return Fault.INVALID if isinstance(error, DiemError) else Fault.UNREACHABLE


class Source(Protocol):
    """Keeps its claimed endpoints up to date while :meth:`run` runs."""

    @property
    def name(self) -> str:
        """Its name in the configuration, the catalogue, logs and metrics."""
        ...

    @property
    def claims(self) -> Sequence[Claim]:
        """All that it will ever write."""
        ...

    @property
    def health(self) -> Health:
        """How it is doing."""
        ...

    async def run(self, sink: Sink) -> None:
        """Work until cancelled; faults of the input are for :attr:`health`, not raised."""
        ...
