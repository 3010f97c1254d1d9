"""Run every check over a history, one client at a time, and report the violations."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.oracle.accounting import check_accounts, check_bases, check_keys, check_store
from tests.oracle.convergence import Convergence, Lags
from tests.oracle.delivery import (
    check_accepted,
    check_data,
    check_members,
    check_order,
    check_rights,
    check_wanted,
)
from tests.oracle.history import Event, History, Kind
from tests.oracle.interest import interests
from tests.oracle.ledger import Ledger
from tests.oracle.notice import check_told
from tests.oracle.violations import Bounds, Violation

KEPT = 1000
"""Most violations that are kept with their evidence; further ones are counted."""


@dataclass
class Report:
    """Violations found by the oracle, and the lags of subscribers."""

    bounds: Bounds
    lags: Lags
    violations: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Counts: violations by class, events by kind, and others."""

    @property
    def clean(self) -> bool:
        """Whether there are no violations."""
        return not self.violations

    def add(self, found: Iterable[Violation]) -> None:
        """Count violations, and keep the first ones."""
        for violation in found:
            self.counts[f"{violation.invariant} {type(violation).__name__}"] += 1
            if len(self.violations) < KEPT:
                self.violations.append(violation)

    def figures(self) -> dict[str, object]:
        """Return the figures for a bench file: seconds, counts, and the first violations as text."""
        return {
            "t_conv_s": quantiles(self.lags.steady),
            "subscribe_to_update_s": quantiles(self.lags.arrival),
            "behind_during_faults_s": {
                f"{fault.kind} {fault.target} at {fault.start:.1f}": round(longest, 4)
                for fault, longest in self.lags.faults.items()
            },
            "bounds_s": {"t_conv": self.bounds.t_conv, "t_heal": self.bounds.t_heal},
            "counts": dict(sorted(self.counts.items())),
            "violations": [str(violation) for violation in self.violations[:20]],
        }


def judge(history: History, bounds: Bounds | None = None) -> Report:
    """Check the whole history, in O(n log n) of its events, with memory for one client and the accepted changes."""
    bounds = bounds or Bounds()
    ledger = Ledger(history.accepted, history.uncertain, faults=history.faults, end=history.end)
    convergence = Convergence(bounds, history.faults)
    report = Report(bounds, convergence.lags)
    report.counts.update(clients=len(history.clients), accepted=len(history.accepted), faults=len(history.faults))
    report.add(check_store(ledger, history.final))
    report.add(check_keys(history.accepted, history.faults))
    report.add(check_bases(ledger))
    report.add(check_accounts(history.snapshots))
    for client, events in history.clients.items():
        _count(report.counts, events)
        report.add(check_order(client, events))
        report.add(check_accepted(client, events, ledger))
        report.add(check_data(client, events, ledger))
        report.add(check_members(client, events, ledger, history.lists, history.final or {}))
        report.add(check_rights(client, events, history.rights.get(client)))
        report.add(check_wanted(client, events))
        report.add(check_told(client, events, history.faults))
        report.add(_check_interests(client, events, history, ledger, convergence))
    return report


def _check_interests(
    client: str, events: list[Event], history: History, ledger: Ledger, convergence: Convergence
) -> Iterator[Violation]:
    final = history.final or {}
    for interest in interests(events, ledger, history.end):
        endpoint = interest.endpoint
        yield from convergence.check(client, interest, ledger[endpoint], final.get(endpoint))


def _count(counts: Counter[str], events: list[Event]) -> None:
    for kind, number in Counter(event.kind for event in events).items():
        counts[f"events {kind}"] += number
    counts["raw frames"] += sum(event.code for event in events if event.kind == Kind.RAW)


def quantiles(samples: list[float]) -> dict[str, float]:
    """Return number, p50, p99 and maximum; only the number if there are no samples."""
    ranked = sorted(samples)
    if not ranked:
        return {"n": 0}
    last = len(ranked) - 1
    picks = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {"n": len(ranked)} | {name: round(ranked[round(last * share)], 5) for name, share in picks.items()}
