"""Conversion of units: exact in decimal, to the canonical unit of the quantity, else refused."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.data.kinds.series.units import QUANTITIES, SOURCE_UNITS, UNITS, conversion, quantity

VALUES = st.integers(-(10**12), 10**12) | st.decimals("-1e6", "1e6", places=6).map(float)


@pytest.mark.parametrize(
    ("unit", "measured", "value", "canonical", "expected"),
    [
        ("kW", "load", 0.1, "MW", 0.0001),
        ("kW", "load", 1234567.8, "MW", 1234.5678),
        ("W", "generation", 3, "MW", 3e-6),
        ("GW", "load_forecast", 1.1, "MW", 1100),
        ("kWh", "load", 0.3, "MWh", 0.0003),
        ("GWh", "flow", 2.675, "MWh", 2675),
        ("EUR/kWh", "price", 0.0812, "EUR/MWh", 81.2),
        ("EUR/kWh", "", 0.0812, "EUR/MWh", 81.2),
        ("ct/kWh", "price", 8.12, "EUR/MWh", 81.2),
        ("EUR/kW", "price", 0.29, "EUR/MW", 290),
        ("kgCO2/MWh", "emissions", 431.7, "gCO2/kWh", 431.7),
        ("K", "temperature", 300, "°C", 26.85),
        ("mHz", "frequency", 49987, "Hz", 49.987),
        ("MW", "load", 5000.5, "MW", 5000.5),
        ("kW", "", 5, "kW", 5),
        ("kW", "other", 5, "kW", 5),
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


@given(st.sampled_from(sorted(SOURCE_UNITS)), VALUES)
def test_conversion_is_exact_and_rounded_once(unit: str, value: float) -> None:
    convert = conversion(unit, "other")
    exact = Fraction(Decimal(repr(value))) * Fraction(convert.factor) + Fraction(convert.offset)
    assert convert(value) == float(exact)


@given(st.decimals("-1e6", "1e6", places=6).map(float))
def test_conversion_to_kilo_and_back_is_exact(value: float) -> None:
    assert conversion("GW", "load")(conversion("kW", "load")(value)) == pytest.approx(value, rel=1e-15)
    assert Decimal(repr(float(conversion("kW", "load")(value)))) == Decimal(repr(value)) / 1000


def test_every_canonical_unit_can_be_stored_and_stays_as_it_is() -> None:
    for name, units in QUANTITIES.items():
        assert set(units) <= UNITS
        assert len(name) <= 32
        assert not any(conversion(unit, name).changes for unit in units)


def test_every_unit_of_a_source_converts_to_one_that_can_be_stored() -> None:
    assert {conversion(unit, "").unit for unit in SOURCE_UNITS} == UNITS


@pytest.mark.parametrize(
    ("unit", "measured", "reason"),
    [
        ("EUR/MWh", "load", "load is not measured in EUR/MWh, but in MW or MWh"),
        ("kW", "price", "price is not measured in kW"),
        ("1", "share", "share is not measured in 1, but in %"),
        ("furlong", "", "unknown unit 'furlong'"),
    ],
)
def test_a_unit_that_does_not_measure_the_quantity_is_refused(unit: str, measured: str, reason: str) -> None:
    with pytest.raises(ValueError, match="^" + reason):
        conversion(unit, measured)


def test_an_unknown_quantity_is_refused() -> None:
    assert quantity("") == ""
    with pytest.raises(ValueError, match="unknown quantity 'prise'; known are price, load"):
        quantity("prise")
