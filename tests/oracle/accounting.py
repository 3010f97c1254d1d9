"""Checks of I1 for the store, and of I14: the final counters of processes against the accepted changes."""

from collections.abc import Iterable, Iterator

from tests.oracle.history import WIPE, Accepted, Fault, Snapshot
from tests.oracle.ledger import Ledger
from tests.oracle.violations import KeyTwice, StoreLost, Unaccounted, WrongBase


def check_store(ledger: Ledger, final: dict[str, int] | None) -> Iterator[StoreLost]:
    """I1: REST ends at the latest accepted version of every endpoint, or at a later one whose answer was lost.

    Collections are in ``final`` where they were asked for.
    """
    if final is None:
        return
    for name, changes in ledger.items():
        if ledger.collection(name) is not None and name not in final:
            continue
        if changes.versions and final.get(name, 0) < changes.latest:
            yield StoreLost("", name, (final.get(name, 0), changes.latest), (changes.times[-1],))


def check_keys(accepted: Iterable[Accepted], faults: Iterable[Fault]) -> Iterator[KeyTwice]:
    """I1: requests with one Idempotency-Key got one version per endpoint, unless the store was wiped between them."""
    wipes = [fault for fault in faults if fault.kind == WIPE]
    first: dict[tuple[str, str], Accepted] = {}
    for change in accepted:
        if not change.key:
            continue
        before = first.setdefault((change.key, change.endpoint), change)
        wiped = any(before.time <= wipe.end and wipe.start <= change.time for wipe in wipes)
        if before.version != change.version and not wiped:
            versions, times = (before.version, change.version), (before.time, change.time)
            yield KeyTwice("", change.endpoint, versions, times)


def check_bases(ledger: Ledger) -> Iterator[WrongBase]:
    """I1: a write with ``If-Match`` was accepted after the version that it names, and after no other."""
    for name, endpoint in ledger.endpoints():
        before = 0
        for change in endpoint.changes:
            if change.after and change.after != before:
                yield WrongBase("", name, (change.after, before, change.version), (change.time,))
            before = change.version


def check_accounts(snapshots: Iterable[Snapshot]) -> Iterator[Unaccounted]:
    """I14: every update that a process consumed was forwarded, not subscribed, stale or bad."""
    for process, consumed, *outcomes in snapshots:
        if consumed != sum(outcomes):
            yield Unaccounted(process, "", (consumed, sum(outcomes)))
