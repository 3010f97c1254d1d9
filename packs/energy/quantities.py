"""Quantities of the electricity market, and the canonical units of their data."""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from services.data.kinds.series.units import Conversion

_ANY: Final = "¤"
"""Any currency in a canonical unit: a price keeps its own."""
_PRICE: Final = re.compile(r"(?:(ct)|([kM]?)([A-Z]{3}))/(.+)")
_SCALES: Final = {"": Fraction(1), "k": Fraction(1000), "M": Fraction(1_000_000)}


class EnergyQuantity:
    """A quantity with its canonical units; data in another unit of the same dimension is converted.

    Currencies are not converted: they are those of ISO 4217, with ``k`` or ``M`` before them, and ``ct`` of EUR.
    """

    def __init__(self, *units: str) -> None:
        self._units = units

    @property
    def units(self) -> str:
        """The canonical units, for messages."""
        return " or ".join(self._units).replace(_ANY, "EUR")

    def conversion(self, unit: str, /) -> Conversion | None:
        """Return the conversion of a unit to a canonical one; None: it has another dimension."""
        price = _PRICE.fullmatch(unit)
        currency = "" if price is None else price[3] or "EUR"
        targets = [each.replace(_ANY, currency) for each in self._units if currency or not each.startswith(_ANY)]
        if unit in targets:
            return Conversion(unit)
        # The library is loaded only here: 0.3 s and 19 MB, and most sources have canonical units.
        from packs.energy.measures import ratio  # noqa: PLC0415

        for target in targets:
            if price is None:
                found = ratio(unit, target)
                if found is not None:
                    return Conversion(target, *found)
            elif target.startswith(f"{currency}/"):
                found = ratio(price[4], target.partition("/")[2])
                if found is not None and found.offset == 0:
                    scale = Fraction(1, 100) if price[1] else _SCALES[price[2]]
                    return Conversion(target, scale / found.factor)
        return None


_POWER: Final = ("MW", "MWh")
QUANTITIES: Final[Mapping[str, EnergyQuantity]] = {
    "price": EnergyQuantity("¤/MWh", "¤/MW", "¤/tCO2"),
    "load": EnergyQuantity(*_POWER),
    "load_forecast": EnergyQuantity(*_POWER),
    "generation": EnergyQuantity(*_POWER),
    "generation_forecast": EnergyQuantity(*_POWER),
    "flow": EnergyQuantity(*_POWER),
    "capacity": EnergyQuantity(*_POWER),
    "imbalance": EnergyQuantity("¤/MWh", *_POWER),
    "emissions": EnergyQuantity("tCO2", "tCO2/h", "gCO2/kWh"),
    "temperature": EnergyQuantity("°C"),
    "wind": EnergyQuantity("m/s"),
    "radiation": EnergyQuantity("W/m2"),
    "precipitation": EnergyQuantity("mm"),
    "discharge": EnergyQuantity("m3/s"),
    "frequency": EnergyQuantity("Hz"),
    "voltage": EnergyQuantity("kV"),
    "share": EnergyQuantity("%"),
}
"""Quantities by name; data of any other is not converted."""
