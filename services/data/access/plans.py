"""Plans: requests per minute and day, covered endpoints, and the declaring ``[[plan]]`` tables."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from diem.protocol import endpoints
from diem.protocol.endpoints import coverage
from diem.tokens.claims import EVERYTHING
from diem.tokens.verifier import MAX_OWN_AHEAD_S

ANONYMOUS: Final = "anonymous"
"""The plan of readers without a key, counted per address."""
PLAN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}", re.ASCII)
MINUTE_S: Final = 60
DAY_S: Final = 86_400
MAX_TOKEN_S: Final = int(MAX_OWN_AHEAD_S)
"""Longest lifetime of a client token in seconds, and the default: the delay of a plan's changes."""
MIN_TOKEN_S: Final = 10
USERS_PER_PLAN: Final = 10
"""Default share of a key's plan for one of its users."""


class RequestLimits(NamedTuple):
    """Limits of one reader's requests; None: unlimited."""

    per_minute: int | None = None
    per_day: int | None = None

    def times(self, number: int) -> "RequestLimits":
        """Return a multiple of these limits."""
        return RequestLimits(*(None if units is None else number * units for units in self))


NOT_GIVEN: Final = RequestLimits()


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """A plan; None or empty means unlimited."""

    name: str
    per_minute: int | None = None
    per_day: int | None = None
    prefixes: tuple[str, ...] = ()
    token_s: int = MAX_TOKEN_S
    """Seconds until client tokens expire."""
    per_user: RequestLimits = NOT_GIVEN
    """Limits of each user (subject of tokens), within the plan; None: a tenth of the plan."""
    may_read: Callable[[str], bool] = field(init=False, repr=False, compare=False)
    """Predicate for endpoints equal to or below one of the prefixes."""

    def __post_init__(self) -> None:
        """Prepare the prefixes once."""
        object.__setattr__(self, "may_read", coverage(self.prefixes or (EVERYTHING,)))

    @property
    def limits(self) -> RequestLimits:
        """Limits of all readers with one key together."""
        return RequestLimits(self.per_minute, self.per_day)

    @property
    def limits_of_user(self) -> RequestLimits:
        """Limits of one user of a key."""
        given = self.per_user
        return RequestLimits(
            _part(self.per_minute) if given.per_minute is None else given.per_minute,
            _part(self.per_day) if given.per_day is None else given.per_day,
        )


def _part(units: int | None) -> int | None:
    return None if units is None else max(1, units // USERS_PER_PLAN)


STANDARD: Final = AccessPlan("standard", per_minute=600, per_day=100_000)
"""The plan of API keys if no ``[[plan]]`` for keys is configured."""


class AccessPlans(Mapping[str, AccessPlan]):
    """The plans for keys by name, and :attr:`anonymous`, the plan of readers without a key."""

    @classmethod
    def configured(cls, tables: "Iterable[PlanConfig]") -> "AccessPlans":
        """Return the plans of ``[[plan]]`` tables; without one for keys, with :data:`STANDARD`."""
        plans = [each.plan for each in tables]
        return cls(plans if any(plan.name != ANONYMOUS for plan in plans) else [*plans, STANDARD])

    def __init__(self, plans: Iterable[AccessPlan] = ()) -> None:
        by_name = {plan.name: plan for plan in plans}
        self.anonymous: Final = by_name.pop(ANONYMOUS, None)
        """None: the built-in rate of each address applies."""
        self._plans = by_name

    def __getitem__(self, name: str) -> AccessPlan:
        return self._plans[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._plans)

    def __len__(self) -> int:
        return len(self._plans)


MAX_PER_MINUTE: Final = 1_000_000
MAX_PER_DAY: Final = 1_000_000_000


def _name(text: str) -> str:
    if PLAN_NAME.fullmatch(text) is None:
        raise ValueError("expected at most 32 letters, digits and ._- that begin with a letter or digit")
    return text


def _prefix(name: str) -> str:
    try:
        return endpoints.check_written(name)
    except endpoints.BadName as error:
        raise ValueError(error.reason) from None


class PlanConfig(BaseModel):
    """One plan. A plan named ``anonymous`` is for readers without a key, per address."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, AfterValidator(_name)]
    per_minute: int | None = Field(
        default=None, ge=1, le=MAX_PER_MINUTE, description="Requests within any 60 seconds; without it, any number."
    )
    per_day: int | None = Field(
        default=None, ge=1, le=MAX_PER_DAY, description="Requests within a day (UTC); without it, any number."
    )
    per_user_per_minute: int | None = Field(
        default=None, ge=1, le=MAX_PER_MINUTE, description="The same for each user of a key; without it, a tenth."
    )
    per_user_per_day: int | None = Field(
        default=None, ge=1, le=MAX_PER_DAY, description="The same for each user of a key; without it, a tenth."
    )
    prefixes: list[Annotated[str, AfterValidator(_prefix)]] | None = Field(
        default=None, min_length=1, max_length=100, description="Endpoints, and what is below them; without it, all."
    )
    token_seconds: int = Field(
        default=MAX_TOKEN_S, ge=MIN_TOKEN_S, le=MAX_TOKEN_S, description="Seconds until client tokens expire."
    )

    @property
    def plan(self) -> AccessPlan:
        """The declared plan."""
        prefixes = tuple(self.prefixes or ())
        per_user = RequestLimits(self.per_user_per_minute, self.per_user_per_day)
        return AccessPlan(self.name, self.per_minute, self.per_day, prefixes, self.token_seconds, per_user)
