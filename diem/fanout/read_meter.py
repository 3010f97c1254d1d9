"""Counts of the data sent to clients with updates, by API key and user, and the leases that bound it.

docs/access.md section 4. The fan-out adds the number of receivers to the meter of their key, and to that of their user:
one addition per update and meter, not per delivery. The Data Service leases units of a key's quota to each process,
which sends no more data than that until the next answer.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

UNLIMITED: Final = 1 << 60
"""Lease of an account whose plan has no limit, and of all keys while no report is answered."""
WANTED_RATE: Final = 4
"""Wanted lease of a key, as a multiple of the data sent to its clients since the last report: demand may grow."""


def _ignore() -> None:
    """No-op: nobody renews leases early."""


class ReadMeter:
    """Data sent since the last report to the clients of one account: an API key or one of its users."""

    __slots__ = (
        "_low",
        "_on_low",
        "_waiting",
        "account",
        "clients",
        "exhausted",
        "held",
        "lease",
        "needed",
        "parts",
        "per_user",
        "reads",
        "subscriptions",
    )

    def __init__(
        self,
        account: str,
        key: "ReadMeter | None" = None,
        *,
        lease: int = UNLIMITED,
        on_low: Callable[[], None] = _ignore,
    ) -> None:
        self.account = account
        """Id of the API key, for a user followed by a slash and the name; empty: data is not counted."""
        self.parts: tuple[ReadMeter, ...] = (self,) if key is None else (key, self)
        """All meters that count what the clients of this one are sent."""
        self.reads = 0
        """Datasets that were given to sessions and not reported yet."""
        self.held = 0
        """Those that sessions of slow clients hold: they are reported once they are sent."""
        self.lease = lease
        """Bound of :attr:`reads` until the next answer."""
        self.exhausted = False
        """The lease is used up: clients are sent updates without data."""
        self.needed = 0
        """Receivers of an update that the lease did not suffice for."""
        self.per_user = UNLIMITED
        """Of a key: the lease of a user of whom nothing was reported yet."""
        self.clients = 0
        """Open sessions whose data is counted here."""
        self.subscriptions = 0
        """Those of these sessions that are sent data."""
        self._low = _low_mark(lease)
        """Beyond so many reads the lease is renewed early, or is used up."""
        self._on_low = on_low
        self._waiting: list[Callable[[], None]] = []

    def admits(self, units: int) -> bool:
        """Return whether the lease suffices for this many more; if not, it is used up. Counts nothing."""
        reads = self.reads + units
        if reads <= self._low:
            return True
        if reads <= self.lease:
            self._low = self.lease
            self._on_low()
            return True
        self.needed = max(self.needed, units)
        if not self.exhausted:
            self.exhausted = True
            self._on_low()
        return False

    def spend(self, units: int) -> bool:
        """Count data both here and at the key, or return False if a lease does not suffice."""
        if not all(part.admits(units) for part in self.parts):
            return False
        for part in self.parts:
            part.reads += units
        return True

    def add(self, reads: int, *, held: int) -> None:
        """Correct the counts, here and at the key, by data that sessions held, released or dropped."""
        for part in self.parts:
            part.reads += reads
            part.held += held

    @property
    def used_up(self) -> bool:
        """True if the lease of this account, or of its key, is used up."""
        return any(part.exhausted for part in self.parts)

    def drain(self) -> int:
        """Return and reset the data sent since the last call."""
        sent = self.reads - self.held
        self.reads = self.held
        self.lease = max(0, self.lease - sent) if self.lease < UNLIMITED else UNLIMITED
        self._low = min(self._low, self.lease)
        return sent

    def renew(self, lease: int) -> bool:
        """Replace the lease; return whether this starts or stops the clients' data."""
        before, self.exhausted = self.exhausted, self.reads >= lease
        self.lease = lease
        self._low = max(self.reads, _low_mark(lease))
        self.needed = 0
        return self.exhausted != before

    def return_lease(self) -> bool:
        """Give up the unneeded lease of a key; return whether the Data Service has counted it."""
        counted = 0 < self.lease < UNLIMITED
        self.lease = self._low = 0
        return counted

    def wait_for_lease(self, resume: Callable[[], None]) -> bool:
        """Call ``resume`` once a lease of this key is granted or refused; return False if one already was."""
        if self.lease or self.exhausted:
            return False
        self._waiting.append(resume)
        self._on_low()
        return True

    def resume_waiting(self) -> None:
        """Call everything waiting for a lease."""
        waiting, self._waiting = self._waiting, []
        for resume in waiting:
            resume()

    @property
    def wanted(self) -> bool:
        """True if clients of a key can use a lease."""
        return bool(self.subscriptions or self.exhausted or self._waiting)


def _low_mark(lease: int) -> int:
    return lease if lease >= UNLIMITED else lease // 2


def _lease(units: int | None) -> int:
    return UNLIMITED if units is None else units


class _Unmetered(ReadMeter):
    """No-op meter, for clients without an API key and links between processes."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("")
        self.parts = ()


UNMETERED: Final[ReadMeter] = _Unmetered()


class Metered(Protocol):
    """A subscriber whose data is counted."""

    meter: ReadMeter
    """Changed only by :meth:`~diem.fanout.fanout.Registry.set_meter` while it has subscriptions."""


class LeaseReport(NamedTuple):
    """One report on some accounts, with the requested leases."""

    reads: dict[str, int]
    """Data sent since the last report, by account; a user's is also in the count of its key."""
    wanted: dict[str, int]
    """Key -> units of the requested lease; 0 returns its lease."""
    exhausted: list[str]
    """Accounts to query the remainder of: used-up ones, and users with less than all."""

    @property
    def accounts(self) -> set[str]:
        """All accounts of the report."""
        return {*self.reads, *self.wanted, *self.exhausted}


class ReadMeters:
    """The meters of one process: of API keys with open connections or unreported reads, and of their users.

    Args:
        on_low: called when a lease needs renewal before the next report is due.
    """

    def __init__(self, on_low: Callable[[], None] = _ignore) -> None:
        self._meters: dict[str, ReadMeter] = {}
        self._suspended = False
        self.on_low = on_low

    def __len__(self) -> int:
        return len(self._meters)

    def of(self, key: str, user: str | None = None) -> ReadMeter:
        """Return the meter of an API key, or of one of its users: ``<key>/<name>``."""
        meter = self._meters.get(user or key)
        if meter is None:
            if user is None:
                meter = ReadMeter(key, lease=UNLIMITED if self._suspended else 0, on_low=self._wake)
            else:
                holder = self.of(key)
                meter = ReadMeter(user, holder, lease=holder.per_user, on_low=self._wake)
            self._meters[meter.account] = meter
        return meter

    def reports(self, size: int) -> Iterator[LeaseReport]:
        """Iterate over reports of at most ``size`` accounts, draining them; drop unused meters."""
        self._prune()
        report = LeaseReport({}, {}, [])
        for meter in list(self._meters.values()):
            _add(report, meter)
            if len(report.accounts) >= size:
                yield report
                report = LeaseReport({}, {}, [])
        if report.accounts:
            yield report

    def apply(self, accounts: Iterable[str], answer: Mapping[str, Any]) -> list[ReadMeter]:
        """Apply the answer to a report of ``accounts``; return the meters of the clients concerned.

        Data Services of earlier releases answer with the used-up accounts, and grant no leases.
        """
        exhausted = frozenset(answer["exhausted"])
        leases: Mapping[str, int | None] | None = answer.get("leases")
        if leases is None:
            leases = {account: 0 if account in exhausted else None for account in accounts}
        self._suspended = False
        changed: list[ReadMeter] = []
        for key, units in answer.get("per_user", {}).items():
            if key in self._meters:
                changed += self._bound_users(self._meters[key], _lease(units))
        for account, units in leases.items():
            meter = self._meters.get(account)
            if meter is not None and meter.renew(_lease(units)):
                changed.append(meter)
        return changed

    def resume_waiting(self, accounts: Iterable[str]) -> None:
        """Resume the clients waiting for the leases of these accounts."""
        for account in accounts:
            if account in self._meters:
                self._meters[account].resume_waiting()

    def suspend(self) -> list[ReadMeter]:
        """Lift the leases of all keys while no report is answered, but keep counting; leases of users stay in force.

        Return the meters of the clients concerned.
        """
        self._suspended = True
        return [meter for meter in self._meters.values() if len(meter.parts) == 1 and meter.renew(UNLIMITED)]

    def _bound_users(self, key: ReadMeter, lease: int) -> list[ReadMeter]:
        """Set the lease of a key's users without a report so far; return those it is used up for."""
        if lease == key.per_user:
            return []
        key.per_user = lease
        users = [meter for meter in self._meters.values() if meter.parts == (key, meter)]
        return [user for user in users if user.lease >= UNLIMITED and user.renew(lease)]

    def _wake(self) -> None:
        self.on_low()

    def _prune(self) -> None:
        used = {part for meter in self._meters.values() if meter.clients or meter.reads for part in meter.parts}
        self._meters = {account: meter for account, meter in self._meters.items() if meter in used}


def _add(report: LeaseReport, meter: ReadMeter) -> None:
    """Drain a meter into a report, and request the lease it needs."""
    sent = meter.drain()
    if sent:
        report.reads[meter.account] = sent
    if len(meter.parts) > 1:
        if not sent and meter.lease < meter.parts[0].per_user:
            report.exhausted.append(meter.account)
    elif meter.wanted:
        report.wanted[meter.account] = max(1, WANTED_RATE * sent, meter.needed)
        if meter.exhausted and not sent:
            report.exhausted.append(meter.account)
    elif meter.return_lease():
        report.wanted[meter.account] = 0
