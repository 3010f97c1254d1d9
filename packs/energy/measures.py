"""Exact ratios of units of measurement, by Pint."""

import re
from fractions import Fraction
from functools import cache
from typing import Any, Final, NamedTuple

import pint

_FACTOR: Final = re.compile(r"(?P<name>%|[^\W\d_]*CO2|°?[^\W\d_]+)\^?(?P<power>[23])?")
_NAMES: Final = {"%": "percent", "°C": "degC", "°F": "degF"}


class Ratio(NamedTuple):
    """A value in another unit is ``value * factor + offset``."""

    factor: Fraction
    offset: Fraction


def ratio(unit: str, target: str) -> Ratio | None:
    """Return how values in ``unit`` are converted to ``target``; None: an unknown unit, or another dimension."""
    try:
        origin, wanted = _parse(unit), _parse(target)
        zero, one = (_registry().Quantity(Fraction(value), origin).to(wanted).magnitude for value in (0, 1))
    except (ValueError, pint.PintError):
        return None
    return Ratio(Fraction(one - zero), Fraction(zero))


@cache
def _registry() -> Any:  # noqa: ANN401  # generic in Pint
    registry: Any = pint.UnitRegistry(non_int_type=Fraction, cache_folder=None)
    # A mass of its own: carbon dioxide is not converted to other substances.
    registry.define("gCO2 = [carbon_dioxide]")
    registry.define("tCO2 = 1000000 * gCO2")
    return registry


def _parse(text: str) -> Any:  # noqa: ANN401  # of Pint
    """Return the unit of a text such as ``kWh/m2``; raises ValueError for another notation.

    Pint's own parser takes any arithmetic, which is more than sources may send.
    """
    registry, powers = _registry(), dict[str, int]()
    for at, part in enumerate(text.split("/")):
        for factor in re.split("[*·]", part):
            match = _FACTOR.fullmatch(factor)
            if match is None:
                if factor == "1":
                    continue
                raise ValueError(f"{text!r} is not a unit of measurement")
            name = registry.get_name(_NAMES.get(match["name"], match["name"]))
            powers[name] = powers.get(name, 0) + int(match["power"] or 1) * (-1 if at else 1)
    return registry.Unit(registry.UnitsContainer({name: power for name, power in powers.items() if power}))
