"""Facts about a body known before it is read: from the request, or from the configuration of a source."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from services.data.datasets.form import Dataset, seal
from services.data.datasets.instants import Instant, Resolution, parse_instant
from services.data.datasets.units import Conversion, conversion, unit
from services.data.datasets.zones import LocalClock, LocalDays


class EndpointDeclaration(NamedTuple):
    """One endpoint; unit and resolution may be left to the data."""

    unit: str | None = None
    resolution: str | None = None
    title: str = ""
    area: str = ""
    quantity: str = ""


@dataclass(frozen=True, slots=True)
class Declared:
    """Whose a body is and how it is to be read.

    Attributes:
        endpoint: whose it is; None when the body names its endpoints.
        common: every endpoint that is not in ``own``.
        own: endpoints with a description of their own.
        clock: of the source; None for bodies that are taken as they are: times in UTC and units not converted.
    """

    endpoint: str | None
    common: EndpointDeclaration = field(default_factory=EndpointDeclaration)
    own: Mapping[str, EndpointDeclaration] = field(default_factory=dict)
    clock: LocalClock | None = None

    def of(self, endpoint: str) -> EndpointDeclaration:
        """What is known of an endpoint."""
        return self.own.get(endpoint, self.common)

    def instant(self, text: str, after: int, grid: int) -> Instant:
        """Read a time; raises ValueError."""
        return parse_instant(text) if self.clock is None else self.clock.instant(text, after=after, grid=grid)

    def days(self, step: Resolution) -> LocalDays | None:
        """What checks the points of one series instead of the grid of its resolution, where the source's zone does."""
        return None if self.clock is None else self.clock.days(step)

    def conversion(self, unit_: str, quantity: str) -> Conversion:
        """What makes values in ``unit_`` those that are stored; raises ValueError."""
        return Conversion(unit(unit_)) if self.clock is None else conversion(unit_, quantity)

    def seal(self, endpoint: str, unit_: str, step: Resolution, points: list[dict[str, Any]]) -> Dataset:
        """The dataset of points that were checked and converted to ``unit_``; raises TooLarge."""
        known = self.of(endpoint)
        sealed = seal(endpoint, unit_, step, points, known.title)
        return replace(sealed, area=known.area, quantity=known.quantity)
