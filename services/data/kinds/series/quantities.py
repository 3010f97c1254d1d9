"""Quantities of installed packages: entry point group ``diem.quantities``, each a mapping of names to quantities.

A quantity that no package knows is a text of the catalogue, and any unit is its own.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Final, Protocol

from diem.errors import ConfigurationError
from services.data.kinds.series.units import Conversion, unit

GROUP: Final = "diem.quantities"
MAX_QUANTITY: Final = 32
MAX_AREA: Final = 64


class Quantity(Protocol):
    """A quantity with canonical units."""

    @property
    def units(self) -> str:
        """The canonical units, for messages."""
        ...

    def conversion(self, unit_: str, /) -> Conversion | None:
        """Return the conversion of a unit in canonical form to one of the quantity; None: it has another dimension."""
        ...


@cache
def installed() -> Mapping[str, Quantity]:
    """Return the quantities of all installed packages by name.

    Raises:
        ConfigurationError: a package cannot be imported, or two have the same quantity.
    """
    found: dict[str, Quantity] = {}
    for point in entry_points(group=GROUP):
        try:
            quantities: Mapping[str, Quantity] = point.load()
            twice = found.keys() & quantities.keys()
        except Exception as error:
            raise ConfigurationError(f"the quantities {point.value} cannot be used: {error!r}"[:300]) from error
        if twice:
            raise ConfigurationError(f"the quantity {min(twice)} is in several packages, among them {point.value}")
        found.update(quantities)
    return found


def conversion(unit_: str, quantity: str) -> Conversion:
    """Return the conversion from a unit to a canonical one of the quantity; any unit is kept if none is known.

    Raises:
        ValueError: no unit, or the quantity is not measured in it.
    """
    canonical = unit(unit_)
    known = installed().get(quantity) if quantity else None
    if known is None:
        return Conversion(canonical)
    found = known.conversion(canonical)
    if found is None:
        raise ValueError(f"{quantity} is not measured in {canonical}, but in {known.units}")
    return found


def check_label(text: str, longest: int) -> str:
    """Return ``text`` if it is printable and not too long. Raises ValueError."""
    if len(text) > longest or not text.isprintable():
        raise ValueError(f"expected at most {longest} printable characters")
    return text


def check_labels(unit_: str, *, area: str, quantity: str) -> None:
    """Check area and quantity of data with this unit, which is not converted; empty ones are unknown.

    Raises:
        ValueError: one of them is not valid, or the unit is not a canonical one of the quantity.
    """
    for name, text, longest in (("area", area, MAX_AREA), ("quantity", quantity, MAX_QUANTITY)):
        try:
            check_label(text, longest)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if (found := conversion(unit_, quantity)).changes or found.unit != unit_:
        raise ValueError(f"the unit of {quantity} is {installed()[quantity].units}, not {unit_}")
