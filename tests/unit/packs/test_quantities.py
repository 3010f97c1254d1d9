"""Quantities of the electricity market: exact conversion to canonical units, or a refusal."""

import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packs.energy.quantities import QUANTITIES
from services.data.kinds.series import quantities
from services.data.kinds.series.quantities import conversion
from services.data.kinds.series.units import Conversion
from services.data.kinds.series.units import unit as canonical_unit

VALUES = st.integers(-(10**12), 10**12) | st.decimals("-1e6", "1e6", places=6).map(float)
CONVERTED = [
    ("kW", "load"), ("MWh/h", "load"), ("GJ", "load"), ("GWh", "flow"), ("ct/kWh", "price"), ("SEK/kWh", "price"),
    ("kEUR/GW", "price"), ("USD/therm", "price"), ("EUR/kgCO2", "price"), ("kgCO2/MWh", "emissions"),
    ("°F", "temperature"), ("K", "temperature"), ("km/h", "wind"), ("m3/h", "discharge"), ("1", "share"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "measured", "value", "canonical", "expected"),
    [
        ("kW", "load", 0.1, "MW", 0.0001),
        ("kW", "load", 1234567.8, "MW", 1234.5678),
        ("W", "generation", 3, "MW", 3e-6),
        ("GW", "load_forecast", 1.1, "MW", 1100),
        ("MWh/h", "load", 4.2, "MW", 4.2),
        ("kWh", "load", 0.3, "MWh", 0.0003),
        ("GWh", "flow", 2.675, "MWh", 2675),
        ("EUR/kWh", "price", 0.0812, "EUR/MWh", 81.2),
        ("€ / kWh", "price", 0.0812, "EUR/MWh", 81.2),
        ("ct/kWh", "price", 8.12, "EUR/MWh", 81.2),
        ("GBP/MWh", "price", 71.5, "GBP/MWh", 71.5),
        ("£/kWh", "price", 0.0715, "GBP/MWh", 71.5),
        ("kSEK/GWh", "imbalance", 812.5, "SEK/MWh", 812.5),
        ("EUR/kW", "price", 0.29, "EUR/MW", 290),
        ("EUR/kgCO2", "price", 0.0731, "EUR/tCO2", 73.1),
        ("kgCO2/MWh", "emissions", 431.7, "gCO2/kWh", 431.7),
        ("K", "temperature", 300, "°C", 26.85),
        ("°F", "temperature", 212, "°C", 100),
        ("km/h", "wind", 90, "m/s", 25),
        ("mHz", "frequency", 49987, "Hz", 49.987),
        ("l/m²", "precipitation", 3.5, "mm", 3.5),
        ("1", "share", 0.29, "%", 29),
        ("MW", "load", 5000.5, "MW", 5000.5),
    ],
)
def test_a_value_is_served_in_the_canonical_unit(
    unit: str, measured: str, value: float, canonical: str, expected: float
) -> None:
    convert = conversion(unit, measured)
    assert convert.unit == canonical
    assert convert(value) == expected
    # Not only equal: written the same, so that equal data has equal bytes.
    assert repr(convert(value)) == repr(expected)


@given(st.sampled_from(CONVERTED), VALUES)
def test_conversion_is_exact_and_rounded_once(case: tuple[str, str], value: float) -> None:
    convert = conversion(*case)
    exact = Fraction(Decimal(repr(value))) * convert.factor + convert.offset
    assert convert(value) == float(exact)


@given(st.decimals("-1e6", "1e6", places=6).map(float))
def test_conversion_to_kilo_and_back_is_exact(value: float) -> None:
    assert conversion("GW", "load")(conversion("kW", "load")(value)) == pytest.approx(value, rel=1e-15)
    assert Decimal(repr(float(conversion("kW", "load")(value)))) == Decimal(repr(value)) / 1000


@pytest.mark.parametrize("unit", ["kW", "EUR/kWh", "goals", "furlong", "K"])
@pytest.mark.parametrize("measured", ["", "score", "other"])
def test_without_a_known_quantity_every_unit_is_its_own(unit: str, measured: str) -> None:
    assert conversion(unit, measured) == Conversion(unit)


def test_canonical_units_stay_as_they_are() -> None:
    for name, quantity in QUANTITIES.items():
        assert len(name) <= quantities.MAX_QUANTITY
        for unit in quantity.units.split(" or "):
            assert canonical_unit(unit) == unit
            assert conversion(unit, name) == Conversion(unit)


@pytest.mark.parametrize(
    ("unit", "measured", "reason"),
    [
        ("EUR/MWh", "load", "load is not measured in EUR/MWh, but in MW or MWh"),
        ("kW", "price", "price is not measured in kW, but in EUR/MWh or EUR/MW or EUR/tCO2"),
        ("EUR", "price", "price is not measured in EUR"),
        ("kg", "emissions", "emissions is not measured in kg"),
        ("°C/h", "temperature", "temperature is not measured in °C/h"),
        ("furlong", "wind", "wind is not measured in furlong"),
        ("m**9**9**9/s", "wind", r"wind is not measured in m\*\*9"),
        ("(m)/s", "wind", r"wind is not measured in \(m\)/s"),
        ("", "wind", "a unit is a text"),
    ],
)
def test_a_unit_that_does_not_measure_the_quantity_is_refused(unit: str, measured: str, reason: str) -> None:
    with pytest.raises(ValueError, match="^" + reason):
        conversion(unit, measured)


@given(st.text(max_size=32), st.sampled_from(sorted(QUANTITIES)))
def test_no_text_is_a_unit_by_accident(text: str, measured: str) -> None:
    try:
        found = conversion(text, measured)
    except ValueError:
        return
    assert conversion(found.unit, measured) == Conversion(found.unit)


def test_quantities_and_units_are_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "energy.md").read_text()
    described: dict[str, str] = {}
    for line in re.findall(r"^\| `.*", text.partition("## The simulated market")[0], re.MULTILINE):
        names, units, _ = (cell.strip() for cell in line.strip("|").split("|"))
        described |= {name: units.replace(", ", " or ") for name in re.findall(r"`(\w+)`", names)}
    assert described == {name: quantity.units for name, quantity in QUANTITIES.items()}
