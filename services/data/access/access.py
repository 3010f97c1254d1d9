"""Admits or refuses requests by API key and plan, counts them, and administers API and write keys."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Self

import structlog

from diem.process import metrics
from diem.process.clock import Clock
from diem.process.limits import networks
from diem.protocol.traffic import Accessed
from diem.tokens.claims import Claims
from diem.tokens.errors import TokenInvalid
from services.data.access import records
from services.data.access.accounts import KeyAccounts, MemoryAccounts, UsageTracker, state_reason
from services.data.access.keys import ApiKeys, Key, KeyState, WriteTerms, new_key
from services.data.access.last_use import LastUse
from services.data.access.plans import AccessPlan, AccessPlans
from services.data.access.quota import (
    REASONS,
    USER_PREFIX,
    USER_REASONS,
    Limit,
    Quota,
    QuotaDecision,
    QuotaOutcome,
    QuotaReason,
    QuotaRequest,
    day_of,
)
from services.data.access.signing import SigningKeys
from services.data.access.tokens import Tokens
from services.data.errors import DataError, StoreUnavailable
from services.data.store.store import Store

INLINE: Final = "inline"
"""Outcome, in metrics, of data sent with an update."""
MAX_REPORTERS: Final = 1000
"""Maximum number of processes with a remembered last report; the oldest is evicted."""
MAX_CELLS: Final = 10_000
"""Maximum number of cells in one interval, and of endpoints counted by key."""


class Cell(NamedTuple):
    """A cell for counting requests; ``key`` and ``endpoint`` are empty for requests without one."""

    key: str
    plan: str
    endpoint: str


class Count(NamedTuple):
    """Counts of one cell."""

    answered: int = 0
    """Requests admitted by the plan, whatever the answer."""
    refused: int = 0
    """Requests beyond the plan's quota or endpoints."""


class ReadReport(NamedTuple):
    """An edge's report of data sent with updates (docs/access.md section 5)."""

    source: str
    """The incarnation of the process."""
    number: int
    """Number of the report, from 1; the same in repetitions."""
    reads: Mapping[str, int]
    """Reads by account since the previous report. An account is a key, or a user of one (``<key>/<subject>``), whose
    reads are also counted under the key."""
    exhausted: tuple[str, ...]
    """Further accounts to query the remainder of."""
    wanted: Mapping[str, int] = {}
    """Key -> units of the requested lease; 0 returns it. Old edges have no leases."""


class ReadAnswer(NamedTuple):
    """The answer to a report."""

    exhausted: list[str]
    """Keys of the report with a used-up quota."""
    leases: dict[str, int | None]
    """Account -> data the edge may send until its next report; None: unlimited."""
    per_user: dict[str, int | None]
    """Key -> the same for each of its users not reported yet."""


class Usage:
    """Counts requests in at most 10,000 cells; beyond, they are counted without endpoint, and in :attr:`merged`."""

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """Requests by plan and outcome; bounded by the configured plans."""
        self.merged = 0
        """Requests counted without their endpoint."""
        self._cells: dict[Cell, Count] = {}
        self._day = -1
        self._today: dict[str, Counter[str]] = {}
        self._named = 0

    def add(self, cell: Cell, outcome: str, day: int, *, refused: bool) -> None:
        """Count one request. ``outcome`` is a :class:`QuotaReason`; ``day`` is in days since 1970."""
        self._add(cell, outcome, Count(not refused, refused))
        if cell.key and not refused:
            self._name(cell, day, 1)

    def add_reads(self, key: str, plan: str, day: int, reads: int) -> None:
        """Count data sent with updates to a key's clients, as answered requests without an endpoint."""
        cell = Cell(key, plan, "")
        self._add(cell, INLINE, Count(answered=reads))
        self._name(cell, day, reads)

    def _add(self, cell: Cell, outcome: str, count: Count) -> None:
        self.outcomes[cell.plan, outcome] += sum(count)
        if cell not in self._cells and len(self._cells) >= MAX_CELLS:
            self.merged += sum(count)
            cell = cell._replace(endpoint="")
        before = self._cells.get(cell, Count())
        self._cells[cell] = Count(before.answered + count.answered, before.refused + count.refused)

    def drain(self) -> list[Accessed]:
        """Return the counts since the last call, as entries of traffic events, and reset them."""
        return [Accessed(*cell, *count) for cell, count in self.swap().items()]

    def swap(self) -> dict[Cell, Count]:
        """Return the counts since the last call, and reset them."""
        cells, self._cells = self._cells, {}
        return cells

    def today(self, key: str, day: int) -> Counter[str]:
        """Return a key's answered requests by endpoint on a day, since the process started."""
        return self._today.get(key, Counter()) if day == self._day else Counter()

    def forget(self, key: str) -> None:
        """Drop the counts of a revoked key."""
        self._named -= len(self._today.pop(key, ()))

    def _name(self, cell: Cell, day: int, count: int) -> None:
        if day != self._day:
            self._day, self._named = day, 0
            self._today.clear()
        counts = self._today.setdefault(cell.key, Counter())
        endpoint = cell.endpoint
        if endpoint not in counts:
            if self._named >= MAX_CELLS:
                endpoint = ""
            self._named += endpoint not in counts
        counts[endpoint] += count


_logger = structlog.get_logger(__name__)


INVALID: Final = frozenset({QuotaReason.UNKNOWN, QuotaReason.REVOKED, QuotaReason.EXPIRED})
"""Reasons due to the key alone, whatever the request."""


class UnknownPlan(DataError):
    """A plan not configured."""

    code = "unknown_plan"


class Access:
    """Keys, plans and usage of one Data Service, owned by one event loop: each decision is one step.

    Args:
        plans: the configured plans.
        api_keys: the keys of the store.
        store: stores keys and daily counts.
        clock: of minutes and days.
        signing: keys that sign client tokens; None: one in memory, for tests.
    """

    def __init__(
        self, plans: AccessPlans, api_keys: ApiKeys, store: Store, clock: Clock, signing: SigningKeys | None = None
    ) -> None:
        self.plans = plans
        self.tokens = Tokens(api_keys, signing or SigningKeys(None, clock), clock)
        self.usage = Usage()
        self.usage_tracker = UsageTracker(lambda wanted: store.transact(partial(records.add_units, wanted=wanted)))
        self.last_use = LastUse(lambda used_ms: store.transact(partial(records.keep_last_uses, used_ms=used_ms)))
        self._api_keys = api_keys
        self._store = store
        self._clock = clock
        self._accounts = KeyAccounts(self.usage_tracker, api_keys, clock)
        self._addresses = MemoryAccounts(clock)
        self._users = MemoryAccounts(clock)
        self._minters = MemoryAccounts(clock)
        """Tokens by key, and by user: apart, so that no reader can use up what renews the tokens of others."""
        self._creating = asyncio.Lock()
        self._reports: OrderedDict[str, tuple[int, set[str]]] = OrderedDict()
        """Process -> number of its last report of reads, and the keys that were charged for it."""
        self._unknown = 0

    @classmethod
    async def open(cls, plans: AccessPlans, store: Store, clock: Clock, signing: SigningKeys | None = None) -> Self:
        """Load the store's keys.

        Raises:
            StoreUnavailable: the store cannot be read.
        """
        api_keys = ApiKeys(await store.transact(records.read_keys))
        in_use = {key.plan for key in api_keys.all() if key.state(clock.wall_ms()) is KeyState.VALID and not key.writes}
        if unconfigured := in_use - set(plans):
            _logger.warning("keys have plans that are not configured: they are refused", plans=sorted(unconfigured))
        return cls(plans, api_keys, store, clock, signing)

    # Requests

    async def admit(self, text: str, request: QuotaRequest) -> QuotaDecision:
        """Admit or refuse a request with a key."""
        key, now_ms = self._api_keys.find(text), self._clock.wall_ms()
        refused = state_reason(key, now_ms)
        if key is None or refused is not None:
            self._unknown += 1
            return QuotaDecision(refused or QuotaReason.UNKNOWN, key=key)
        if key.writes:
            return QuotaDecision(QuotaReason.WRITE_ONLY, key=key)
        return await self._admit(key, request, None)

    async def admit_token(
        self, token: str, request: QuotaRequest, before_check: Callable[[], None] | None = None
    ) -> QuotaDecision:
        """Admit or refuse a request with a client token: by the plan of its key now, and by its own prefixes.

        ``before_check`` is called before a signature check; its errors are propagated.
        """
        try:
            claims, key = await self.tokens.verify(token, before_check)
        except TokenInvalid:
            return QuotaDecision(QuotaReason.UNVERIFIED)
        refused = state_reason(key, self._clock.wall_ms())
        if refused is not None:
            return QuotaDecision(refused, key=key)
        return await self._admit(key, request, claims)

    async def _admit(self, key: Key, request: QuotaRequest, claims: Claims | None) -> QuotaDecision:
        self.last_use.touch(key.id, self._clock.wall_ms())
        plan = self.plans.get(key.plan)
        if plan is None:
            return self._count(QuotaDecision(QuotaReason.NO_PLAN, key.plan, key=key), request)
        if not key.allows_origin(request.origin):
            return self._count(QuotaDecision(QuotaReason.ORIGIN, key.plan, key=key), request)
        if request.mints and claims is None:
            # Counted by admit_token_request, once the body names the user.
            return self._token_decision(key, plan, [self._minters.quota(key.id, plan.limits)])
        user = None if claims is None else claims.user
        reason = QuotaReason.ADMITTED if request.free else await self._acquire(key, plan, user)
        if reason in INVALID:
            self._unknown += 1
            return QuotaDecision(reason, key=key)
        if reason is QuotaReason.ADMITTED:
            reason = _allowed(plan, request)
            if claims is not None and request.endpoint is not None and not claims.allows(request.endpoint):
                reason = QuotaReason.PREFIX
        decision = self._decision(reason, plan, self._accounts.quota(key, plan), key, user)
        if claims is not None and not claims.everything:
            decision = decision._replace(granted=(*decision.granted, claims.prefixes))
        return self._count(decision, request)

    async def _acquire(self, key: Key, plan: AccessPlan, user: str | None) -> QuotaReason:
        """Acquire one unit of a key and of its user, or of neither: units refused to a user remain for others."""
        if user is None:
            return await self._accounts.acquire(key, plan)
        at, day = self._clock.monotonic(), self._today
        outcome, quota = self._users.acquire(user, plan.limits_of_user)
        if outcome is not QuotaOutcome.ADMITTED:
            return USER_REASONS[outcome]
        reason = await self._accounts.acquire(key, plan)
        if reason is not QuotaReason.ADMITTED:
            quota.refund(at, day)
        return reason

    def admit_token_request(self, key: Key, plan: AccessPlan, subject: str) -> QuotaDecision:
        """Admit or refuse a token for a user of a key, or for the key itself if ``subject`` is empty.

        The limits are the plan's limits of requests, and for one user those for one user. Requests and tokens of a key
        are counted separately.
        """
        quotas = [self._minters.quota(key.id, plan.limits)]
        if subject:
            quotas.append(self._minters.quota(f"{key.id}/{subject}", plan.limits_of_user))
        decision = self._token_decision(key, plan, quotas)
        if decision.reason is QuotaReason.ADMITTED:
            for quota in quotas:
                quota.acquire(self._clock.monotonic(), self._today)
        return decision

    def _token_decision(self, key: Key, plan: AccessPlan, quotas: Sequence[Quota]) -> QuotaDecision:
        """Return whether all of these have a token left; only a refusal is counted."""
        limits = [limit for quota in quotas for limit in quota.limits(self._clock.monotonic(), self._clock.wall_ms())]
        waits = [limit.reset_s for limit in limits if not limit.remaining]
        if not waits:
            return QuotaDecision(QuotaReason.ADMITTED, plan.name, key=key)
        self.usage.add(Cell(key.id, plan.name, ""), QuotaReason.TOKENS, self._today, refused=True)
        return QuotaDecision(QuotaReason.TOKENS, plan.name, (), max(waits), key)

    def admit_anonymous(self, plan: AccessPlan, address: str, request: QuotaRequest) -> QuotaDecision:
        """Admit or refuse a request without a key, under the configured anonymous plan.

        Addresses are counted in memory only, and never stored.
        """
        outcome, quota = self._acquire_anonymous(plan, address)
        reason = REASONS[outcome]
        if reason is QuotaReason.ADMITTED:
            reason = _allowed(plan, request)
        return self._count(self._decision(reason, plan, quota, None), request)

    def _acquire_anonymous(self, plan: AccessPlan, address: str) -> tuple[QuotaOutcome, Quota]:
        """Acquire one unit from each network of an address, or from none; return the outcome and the deciding quota."""
        at, quotas = self._clock.monotonic(), list[Quota]()
        for network in networks(address):
            outcome, quota = self._addresses.acquire(network.key, plan.limits.times(network.times))
            if outcome is not QuotaOutcome.ADMITTED:
                for acquired in quotas:
                    acquired.refund(at, self._today)
                return outcome, quota
            quotas.append(quota)
        return QuotaOutcome.ADMITTED, quotas[0]

    async def report_reads(self, report: ReadReport) -> ReadAnswer:
        """Charge keys and users for data that an edge sent with updates; return their allowance until the next report.

        A repeated report is charged once. Unknown and invalid keys are not charged, and get nothing.

        Raises:
            StoreUnavailable: the store cannot commit now; the report may be repeated.
        """
        charged, answer = self._charged(report), ReadAnswer([], {}, {})
        requested = {**report.reads, **report.wanted, **dict.fromkeys(report.exhausted)}
        works = (self._charge(account, report, charged, answer) for account in requested)
        for outcome in await asyncio.gather(*works, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        return answer

    async def _charge(self, account: str, report: ReadReport, charged: set[str], answer: ReadAnswer) -> None:
        """Charge one account of a report unless already in ``charged``; add it there and to the answer."""
        key_id, _, subject = account.partition("/")
        key, now_ms = self._api_keys.get(key_id), self._clock.wall_ms()
        plan = None if key is None or key.writes else self.plans.get(key.plan)
        if key is None or plan is None or state_reason(key, now_ms) is not None:
            answer.leases[account] = 0
            return
        reads = 0 if account in charged else report.reads.get(account, 0)
        charged.add(account)
        if subject:
            answer.leases[account] = self._charge_user(plan, account, reads)
            return
        wanted = report.wanted.get(key_id, 0)
        try:
            used_up, lease = await self._accounts.charge(key, plan, reads, report.source, wanted)
        except StoreUnavailable:
            if reads:
                charged.discard(account)
            raise
        if reads:
            self.last_use.touch(key.id, now_ms)
            self.usage.add_reads(key.id, plan.name, self._today, reads)
        if wanted:
            answer.leases[key_id] = lease
            answer.per_user[key_id] = plan.limits_of_user.per_minute
        if used_up:
            answer.exhausted.append(key_id)

    def _charge_user(self, plan: AccessPlan, user: str, reads: int) -> int | None:
        """Charge a user for data; return the remainder, which is not reserved: the key's lease bounds it, too."""
        quota, now = self._users.quota(user, plan.limits_of_user), self._clock.monotonic()
        if reads:
            quota.charge(now, self._today, reads, missing=0, total=None)
        return quota.left(now, self._today)

    def _charged(self, report: ReadReport) -> set[str]:
        """Return the keys already charged for this report, for the caller to extend; all keys of an older report."""
        last, charged = self._reports.pop(report.source, (0, set()))
        if report.number > last:
            last, charged = report.number, set()
        self._reports[report.source] = last, charged
        if len(self._reports) > MAX_REPORTERS:
            self._reports.popitem(last=False)
        return charged if report.number == last else set(report.reads)

    def _decision(
        self, reason: QuotaReason, plan: AccessPlan, quota: Quota, key: Key | None, user: str | None = None
    ) -> QuotaDecision:
        now, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        limits = tuple(quota.limits(now, wall_ms))
        if user is not None:
            limits += tuple(self._users.quota(user, plan.limits_of_user).limits(now, wall_ms, prefix=USER_PREFIX))
        waits = {limit.name: limit.reset_s for limit in limits}
        wait_s = 2 if reason is QuotaReason.UNAVAILABLE else waits.get(reason.value, 0)
        return QuotaDecision(reason, plan.name, limits, wait_s, key, (plan.prefixes,) if plan.prefixes else ())

    def _count(self, decision: QuotaDecision, request: QuotaRequest) -> QuotaDecision:
        if not request.free:
            # Only existing endpoints are counted by name, because clients may request any name.
            known = request.endpoint is not None and self._store.index.heads.get(request.endpoint) is not None
            endpoint = request.endpoint if known and request.endpoint is not None else ""
            cell = Cell(decision.key.id if decision.key else "", decision.plan, endpoint)
            self.usage.add(cell, decision.reason, self._today, refused=decision.reason is not QuotaReason.ADMITTED)
        return decision

    @property
    def _today(self) -> int:
        return day_of(self._clock.wall_ms())

    def samples(self) -> Iterable[metrics.Sample]:
        """Return the metrics; their labels are bounded by the configured plans."""
        for (plan, outcome), count in self.usage.outcomes.items():
            yield metrics.ACCESS_REQUESTS.sample(count, plan, outcome)
        yield metrics.ACCESS_MERGED.sample(self.usage.merged)
        yield metrics.ACCESS_UNKNOWN.sample(self._unknown)
        now_ms = self._clock.wall_ms()
        valid = [key for key in self._api_keys.all() if key.state(now_ms) is KeyState.VALID]
        yield metrics.ACCESS_KEYS.sample(len(valid))
        if expiries := [key.expires_ms for key in valid if key.expires_ms is not None]:
            yield metrics.ACCESS_KEY_EXPIRY.sample(min(expiries) / 1000)
        yield metrics.ACCESS_RESERVATIONS.sample(self.usage_tracker.commits)
        yield from self.tokens.samples()

    # Administration

    def all_keys(self) -> list[Key]:
        """Return all keys, the oldest first."""
        return self._api_keys.all()

    async def create(
        self, name: str, plan: str, *, lifetime_s: int | None = None, origins: tuple[str, ...] = ()
    ) -> tuple[Key, str]:
        """Create an API key; return its record and its text.

        Args:
            name: of its holder.
            plan: its plan.
            lifetime_s: seconds until it expires; None: it does not.
            origins: canonical origins of pages that may use it; none: all.

        Raises:
            UnknownPlan: there is no such plan.
            TooManyKeys: the store is full of valid keys.
            StoreUnavailable: the store cannot commit now.
        """
        if plan not in self.plans:
            known = ", ".join(sorted(self.plans)) or "none"
            raise UnknownPlan(
                f"there is no plan {plan!r}; known: {known}. Add a [[plan]] to diem.toml (docs/access.md)"
            )
        return await self._add(lifetime_s, partial(new_key, name, plan, origins=origins))

    async def create_writer(self, name: str, terms: WriteTerms, *, lifetime_s: int | None = None) -> tuple[Key, str]:
        """Create a write key, as :meth:`create` does an API key.

        Raises:
            TooManyKeys: the store is full of valid keys.
            StoreUnavailable: the store cannot commit now.
        """
        return await self._add(lifetime_s, partial(new_key, name, "", writes=terms))

    async def _add(self, lifetime_s: int | None, make: Callable[..., tuple[Key, str]]) -> tuple[Key, str]:
        async with self._creating:
            now_ms = self._clock.wall_ms()
            expires_ms = None if lifetime_s is None else now_ms + lifetime_s * 1000
            replaced = self._api_keys.oldest_invalid(now_ms)
            key, text = make(now_ms, expires_ms=expires_ms)
            while self._api_keys.get(key.id) is not None:
                key, text = make(now_ms, expires_ms=expires_ms)
            await self._store.transact(partial(records.add_key, key=key, instead_of=replaced))
            if replaced is not None:
                self._api_keys.remove(replaced.id)
                self.last_use.forget(replaced.id)
            self._api_keys.add(key)
        return key, text

    async def revoke(self, key_id: str) -> Key | None:
        """Revoke a key; None when there is none.

        Raises:
            StoreUnavailable: the revocation is not stored: it takes effect now, but is lost on a restart.
        """
        key = self._api_keys.revoke(key_id, self._clock.wall_ms())
        if key is None:
            return None
        self._accounts.forget(key_id)
        self.usage.forget(key_id)
        await self._store.transact(partial(records.keep_revocation, key=key))
        return key

    def verify(self, text: str, *, writes: bool = False) -> Key | None:
        """Return the API key, or with ``writes`` the write key, with this text; None without a valid one."""
        now_ms = self._clock.wall_ms()
        key = self._api_keys.verify(text, now_ms)
        if key is not None:
            self.last_use.touch(key.id, now_ms)
        return key if key is not None and key.writes == writes else None

    def refusal(self, key: Key) -> QuotaReason | None:
        """Return the reason why a key is no longer valid, or None, for requests that waited since its verification."""
        return state_reason(self._api_keys.get(key.id), self._clock.wall_ms())

    async def usage_of(self, key: Key) -> tuple[int, tuple[Limit, ...]]:
        """Return a key's requests of today, answered or lost with a killed process, and its limits.

        Raises:
            StoreUnavailable: the number is not in memory, and the store cannot be read.
        """
        used, plan = await self._accounts.used(key), self.plans.get(key.plan)
        if plan is None:
            return used, ()
        quota = self._accounts.quota(key, plan)
        return used, tuple(quota.limits(self._clock.monotonic(), self._clock.wall_ms(), used))

    async def close(self) -> None:
        """Release unused reservations and store last uses; requests that need a reservation are refused from now on."""
        await self._accounts.close()
        await self.last_use.flush()


def _allowed(plan: AccessPlan, request: QuotaRequest) -> QuotaReason:
    if request.writes:
        return QuotaReason.READ_ONLY
    return QuotaReason.ADMITTED if request.endpoint is None or plan.may_read(request.endpoint) else QuotaReason.PREFIX
