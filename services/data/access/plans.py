"""Plans: requests per minute and per day, and the endpoints they cover; pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

ANONYMOUS: Final = "anonymous"
"""The plan of readers without a key, counted for each address."""
MINUTE_S: Final = 60
DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """A plan; what is None or empty is not limited."""

    name: str
    per_minute: int | None = None
    per_day: int | None = None
    prefixes: tuple[str, ...] = ()

    def may_read(self, endpoint: str) -> bool:
        """Whether an endpoint is one of the prefixes or below one: ``/dam`` is not a prefix of ``/damage``."""
        return not self.prefixes or any(
            endpoint == prefix or endpoint.startswith(f"{prefix}/") for prefix in self.prefixes
        )


class AccessPlans(Mapping[str, AccessPlan]):
    """The configured plans by name. That of readers without a key is :attr:`anonymous`, not one of them."""

    def __init__(self, plans: Iterable[AccessPlan] = ()) -> None:
        by_name = {plan.name: plan for plan in plans}
        self.anonymous: Final = by_name.pop(ANONYMOUS, None)
        """None: the built-in one, a rate for each address."""
        self._plans = by_name

    def __getitem__(self, name: str) -> AccessPlan:
        return self._plans[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._plans)

    def __len__(self) -> int:
        return len(self._plans)
