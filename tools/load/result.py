"""The result of a load test in plain numbers, and the sum of the results of several processes or machines."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from tools.load.completeness import MAX_EXAMPLES, Completeness, Difference
from tools.load.delays import Delays

BUSY_SHARE: Final = 0.8
"""CPU share of a core above which the tool itself distorts the delays."""
LATE_S: Final = 0.25
"""Delay of the tool's own event loop above which the same applies."""
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
COUNTS: Final = ("refused", "rejected", "interruptions")
_SUMS: Final = ("clients", "subscribed", "updates", "bytes", "processes")
_GREATEST: Final = ("subscriptions", "endpoints", "urls", "wait_s", "measured_s", "cpu_share", "loop_lag_s")
_BEYOND_JSON: Final = {"delays", "written", "completeness"}


class BadResult(ValueError):
    """A file is no result of a load test, or of another release."""


@dataclass
class Written:
    """Writes of a test's own updates."""

    wanted: float
    """Updates a second."""
    accepted: int
    seconds: float
    failed: Counter[str] = field(default_factory=Counter)


@dataclass
class LoadResult:
    """What one process found, or several together."""

    base: str
    clients: int
    subscribed: int
    """Clients with a confirmed subscription."""
    subscriptions: int
    """Of each client."""
    endpoints: int
    urls: int
    partitioned: bool
    wait_s: float
    measured_s: float = 0.0
    updates: int = 0
    bytes: int = 0
    """Payload of all messages during the measurement."""
    cpu_share: float = 0.0
    """CPU time of the tool during the measurement, as a share of one core; of several processes the greatest."""
    loop_lag_s: float = 0.0
    clock_difference_s: float = 0.0
    processes: int = 1
    interrupted: bool = False
    refused: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    interruptions: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    delays: Delays = field(default_factory=Delays)
    written: Written | None = None
    completeness: Completeness | None = None
    """None: the test was interrupted before the comparison, or no client subscribed."""

    @property
    def is_bottleneck(self) -> bool:
        """True if the tool itself was too busy to measure delays."""
        return self.measured_s > 0 and (self.cpu_share > BUSY_SHARE or self.loop_lag_s > LATE_S)

    @property
    def passed(self) -> bool:
        """True if all subscriptions were confirmed, and clients have exactly the catalogue's versions."""
        found = self.completeness
        return (
            found is not None
            and found.checked > 0
            and not (found.missed or found.ahead or found.unsubscribed or self.rejected)
            and self.subscribed == self.clients
        )

    def as_json(self) -> dict[str, Any]:
        """Return the result as a JSON object, which :meth:`from_json` reads."""
        plain = {name: value for name, value in self.__dict__.items() if name not in _BEYOND_JSON}
        rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in plain.items()}
        found, written = self.completeness, self.written
        quantiles = {name: self.delays.quantile(share) for name, share in QUANTILES.items()}
        return {
            **rounded,
            "passed": self.passed,
            "bottleneck": self.is_bottleneck,
            "written": None if written is None else dict(written.__dict__),
            "delay_ms": {
                "count": self.delays.count,
                **{name: None if value is None else round(value, 1) for name, value in quantiles.items()},
                **self.delays.as_json(),
            },
            "missed": None
            if found is None
            else {
                **{name: value for name, value in found.__dict__.items() if isinstance(value, int)},
                "ahead": [each._asdict() for each in found.ahead[:MAX_EXAMPLES]],
                "examples": [each._asdict() for each in found.examples],
            },
        }

    @classmethod
    def from_json(cls, stated: Mapping[str, Any]) -> Self:
        """Return the result of :meth:`as_json`. Raises ``BadResult``."""
        try:
            plain = {name: stated[name] for name in cls.__dataclass_fields__ if name not in _BEYOND_JSON}
            plain |= {name: Counter(plain[name]) for name in COUNTS}
            written, missed = stated["written"], stated["missed"]
            if written is not None:
                written = Written(**{**written, "failed": Counter(written["failed"])})
            if missed is not None:
                of_both = {name: [Difference(**each) for each in missed[name]] for name in ("ahead", "examples")}
                missed = Completeness(**{**missed, **of_both})
            delays = Delays.from_json(stated["delay_ms"])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise BadResult(str(error) or type(error).__name__) from error
        return cls(**plain, delays=delays, written=written, completeness=missed)


def merge(results: Sequence[LoadResult]) -> LoadResult:
    """Return the result of all: counts are added, and what was not checked somewhere was not checked."""
    found = replace(
        results[0],
        delays=Delays(),
        completeness=None,
        clock_difference_s=max((each.clock_difference_s for each in results), key=abs),
        interrupted=any(each.interrupted for each in results),
        problems=[each for result in results for each in result.problems],
        written=_all_written([each.written for each in results if each.written is not None]),
    )
    for name in _SUMS:
        setattr(found, name, sum(getattr(each, name) for each in results))
    for name in _GREATEST:
        setattr(found, name, max(getattr(each, name) for each in results))
    for name in COUNTS:
        setattr(found, name, sum((getattr(each, name) for each in results), Counter[str]()))
    for each in results:
        found.delays.merge(each.delays)
    checked = [each.completeness for each in results]
    if all(each is not None for each in checked):
        found.completeness = _all_checked([each for each in checked if each is not None])
    return found


def _all_written(several: Sequence[Written]) -> Written | None:
    if not several:
        return None
    failed = sum((each.failed for each in several), Counter[str]())
    wanted, accepted = sum(each.wanted for each in several), sum(each.accepted for each in several)
    return Written(wanted, accepted, max(each.seconds for each in several), failed)


def _all_checked(several: Sequence[Completeness]) -> Completeness:
    names = ("checked", "missed", "unconnected", "resynced", "unsubscribed", "removed")
    found = Completeness(**{name: sum(getattr(each, name) for each in several) for name in names})
    found.ahead = [each for one in several for each in one.ahead]
    found.examples = [each for one in several for each in one.examples][:MAX_EXAMPLES]
    return found
