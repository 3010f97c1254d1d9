"""Units and quantities of data, and the exact conversion of sources' units."""

from collections.abc import Collection, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Final, NamedTuple

UNITS: Final = frozenset(
    {"EUR", "EUR/MWh", "EUR/MW", "kW", "MW", "GW", "kWh", "MWh", "GWh", "%", "Hz", "kV", "°C", "m/s", "W/m2", "mm",
     "m3/s", "tCO2", "tCO2/h", "gCO2/kWh", "EUR/tCO2", "1"}
)  # fmt: skip
"""Valid units of a dataset; ``1`` is a plain number."""

_POWER: Final = ("MW", "MWh")
QUANTITIES: Final[Mapping[str, tuple[str, ...]]] = {
    "price": ("EUR/MWh", "EUR/MW", "EUR/tCO2"),
    "load": _POWER,
    "load_forecast": _POWER,
    "generation": _POWER,
    "generation_forecast": _POWER,
    "flow": _POWER,
    "capacity": _POWER,
    "imbalance": ("EUR/MWh", *_POWER),
    "emissions": ("tCO2", "tCO2/h", "gCO2/kWh"),
    "temperature": ("°C",),
    "wind": ("m/s",),
    "radiation": ("W/m2",),
    "precipitation": ("mm",),
    "discharge": ("m3/s",),
    "frequency": ("Hz",),
    "voltage": ("kV",),
    "share": ("%",),
    "other": (),
}
"""Quantities and the canonical units of their data; the data of ``other`` is not converted."""


class _Scale(NamedTuple):
    """A unit as a multiple of a base: ``base = value * factor + offset``."""

    base: str
    factor: Decimal
    offset: Decimal = Decimal(0)


def _scales(base: str, **factors: str) -> dict[str, _Scale]:
    return {name: _Scale(base, Decimal(factor)) for name, factor in factors.items()}


def _per(scales: dict[str, _Scale], end: str) -> dict[str, _Scale]:
    return {name + end: scale for name, scale in scales.items()}


# Factors exact in decimal, mostly powers of ten; km/h and °F have none, so they are missing.
_SCALES: Final[Mapping[str, _Scale]] = {
    **_scales("MW", W="1e-6", kW="1e-3", GW="1e3", TW="1e6"),
    **_scales("MWh", Wh="1e-6", kWh="1e-3", GWh="1e3", TWh="1e6"),
    **_scales("EUR", ct="0.01", kEUR="1e3"),
    **_per(_scales("EUR/MWh", EUR="1e3", ct="10"), "/kWh"),
    **_per(_scales("EUR/MWh", EUR="1e-3"), "/GWh"),
    **_per(_scales("EUR/MW", EUR="1e3"), "/kW"),
    **_per(_scales("EUR/MW", EUR="1e-3"), "/GW"),
    **_per(_scales("EUR/tCO2", EUR="1e3"), "/kgCO2"),
    **_scales("tCO2", gCO2="1e-6", kgCO2="1e-3"),
    **_per(_scales("tCO2/h", gCO2="1e-6", kgCO2="1e-3"), "/h"),
    **_per(_scales("gCO2/kWh", kgCO2="1e3"), "/kWh"),
    **_per(_scales("gCO2/kWh", kgCO2="1", tCO2="1e3"), "/MWh"),
    **_scales("Hz", mHz="1e-3"),
    **_scales("kV", V="1e-3"),
    **_scales("mm", cm="10"),
    **_per(_scales("W/m2", kW="1e3"), "/m2"),
    **_per(_scales("m3/s", l="1e-3"), "/s"),
    "K": _Scale("°C", Decimal(1), Decimal("-273.15")),
}
SOURCE_UNITS: Final = UNITS | _SCALES.keys()
"""Valid units of sources; those not in :data:`UNITS` are converted."""


class Conversion(NamedTuple):
    """Conversion from a source's unit to ``unit``: ``value * factor + offset`` in decimal, rounded to a float once."""

    unit: str
    factor: Decimal = Decimal(1)
    offset: Decimal = Decimal(0)

    @property
    def changes(self) -> bool:
        """True if the conversion changes values."""
        return self.factor != 1 or self.offset != 0

    def __call__(self, value: float) -> int | float:
        """Convert one value: 0.1 kW is 0.0001 MW, never 0.00010000000000000002 MW."""
        found = float(Decimal(repr(value)) * self.factor + self.offset)
        return int(found) if found.is_integer() else found


def unit(text: object) -> str:
    """Return ``text`` if it is one of :data:`UNITS`.

    Raises:
        ValueError: it is not.
    """
    return _one_of(UNITS, text)


def source_unit(text: object) -> str:
    """Return ``text`` if it is one of :data:`SOURCE_UNITS`.

    Raises:
        ValueError: it is not.
    """
    return _one_of(SOURCE_UNITS, text)


def _one_of(known: Collection[str], text: object) -> str:
    if not isinstance(text, str) or text not in known:
        raise ValueError(f"unknown unit {str(text)[:20]!r}; known are {', '.join(sorted(known))}")
    return text


def quantity(text: object) -> str:
    """Return ``text`` if it is one of :data:`QUANTITIES` or empty (none).

    Raises:
        ValueError: it is neither.
    """
    if not isinstance(text, str) or (text and text not in QUANTITIES):
        raise ValueError(f"unknown quantity {str(text)[:20]!r}; known are {', '.join(QUANTITIES)}")
    return text


def check_quantity(unit_: str, quantity_: str) -> None:
    """Check that a quantity is known and served in this unit; an empty one matches any unit.

    Raises:
        ValueError: it is not.
    """
    units = QUANTITIES[quantity(quantity_)] if quantity_ else ()
    if units and unit_ not in units:
        raise ValueError(f"the unit of {quantity_} is {' or '.join(units)}, not {unit_}")


@lru_cache(maxsize=256)
def conversion(unit_: str, quantity_: str) -> Conversion:
    """Return the conversion from a source's unit to the served one.

    The served unit is the canonical one of the quantity (kW of load are served as MW). Without a quantity, a unit of
    :data:`UNITS` is kept, and any other is converted to its base unit.

    Raises:
        ValueError: the unit is unknown, or the quantity is not measured in it.
    """
    source_unit(unit_)
    canonical = QUANTITIES.get(quantity_, ())
    if unit_ in canonical or (not canonical and unit_ in UNITS):
        return Conversion(unit_)
    scale = _SCALES.get(unit_)
    if scale is None or (canonical and scale.base not in canonical):
        raise ValueError(f"{quantity_} is not measured in {unit_}, but in {' or '.join(canonical)}")
    return Conversion(scale.base, scale.factor, scale.offset)
