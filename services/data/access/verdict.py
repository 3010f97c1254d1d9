"""Requests to a plan's limits, and their outcomes."""

from enum import StrEnum
from typing import Final, NamedTuple

from services.data.access.keys import Key
from services.data.access.quota import Limit, QuotaOutcome


class QuotaReason(StrEnum):
    """What was decided on a request."""

    ADMITTED = "admitted"
    UNKNOWN = "unknown"
    """The key is none of ours, or is revoked."""
    NO_PLAN = "no_plan"
    """The plan of the key is not configured any more."""
    READ_ONLY = "read_only"
    PREFIX = "prefix"
    MINUTE = "minute"
    DAY = "day"
    UNAVAILABLE = "unavailable"
    """Nothing is reserved of the day, and the store cannot commit."""


class QuotaDecision(NamedTuple):
    """The decision, and the limits as they stand after it."""

    reason: QuotaReason
    plan: str = ""
    limits: tuple[Limit, ...] = ()
    wait_s: int = 0
    """After how long it is worth another try; 0 when that does not help."""
    key: Key | None = None


class QuotaRequest(NamedTuple):
    """A request, as far as plans are concerned."""

    endpoint: str | None
    """Whose data it asks for; None when it is not about one endpoint."""
    writes: bool = False
    free: bool = False
    """Whether no unit is taken for it."""


REASONS: Final = {
    QuotaOutcome.TAKEN: QuotaReason.ADMITTED,
    QuotaOutcome.OVER_MINUTE: QuotaReason.MINUTE,
    QuotaOutcome.OVER_DAY: QuotaReason.DAY,
}
