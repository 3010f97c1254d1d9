"""The tables ``[[plan]]`` of ``diem.toml`` (see :mod:`services.data.sources.config`, which reads the file)."""

from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from diem.protocol import endpoints
from services.data.access.plans import AccessPlan

MAX_PER_MINUTE: Final = 1_000_000
MAX_PER_DAY: Final = 1_000_000_000


def _prefix(name: str) -> str:
    try:
        return endpoints.check(name)
    except endpoints.BadName as error:
        raise ValueError(error.reason) from None


class PlanConfig(BaseModel):
    """One plan. A plan called ``anonymous`` is for readers without a key, for each address."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$")]
    per_minute: int | None = Field(
        default=None, ge=1, le=MAX_PER_MINUTE, description="Requests within any 60 seconds; without it, any number."
    )
    per_day: int | None = Field(
        default=None, ge=1, le=MAX_PER_DAY, description="Requests within a day (UTC); without it, any number."
    )
    prefixes: list[Annotated[str, AfterValidator(_prefix)]] | None = Field(
        default=None, min_length=1, max_length=100, description="Endpoints, and what is below them; without it, all."
    )

    @property
    def plan(self) -> AccessPlan:
        """The plan that it says."""
        return AccessPlan(self.name, self.per_minute, self.per_day, tuple(self.prefixes or ()))
