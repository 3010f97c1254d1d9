"""Units: any short text in one form; labels that no package knows are texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.data.kinds.series.quantities import check_labels, conversion
from services.data.kinds.series.units import MAX_UNIT, Conversion, unit


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("EUR/MWh", "EUR/MWh"),
        ("€/MWh", "EUR/MWh"),
        ("EUR / MWh", "EUR/MWh"),
        ("  EUR/ MWh\t", "EUR/MWh"),
        ("£/MWh", "GBP/MWh"),
        ("PLN/MWh", "PLN/MWh"),
        ("k€", "kEUR"),
        ("$", "$"),
        ("W/m²", "W/m2"),
        ("m³/s", "m3/s"),
        ("µg/m³", "μg/m3"),
        ("℃", "°C"),
        ("ºC", "°C"),
        ("kg · m", "kg·m"),
        ("goals per match", "goals per match"),
        ("1", "1"),
        ("hPa", "hPa"),
    ],
)
def test_a_unit_is_any_text_in_one_form(text: str, canonical: str) -> None:
    assert unit(text) == canonical


@given(st.text(max_size=2 * MAX_UNIT))
def test_the_form_is_one(text: str) -> None:
    try:
        canonical = unit(text)
    except ValueError:
        return
    assert unit(canonical) == canonical
    assert 1 <= len(canonical) <= MAX_UNIT
    assert canonical.isprintable()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a unit is a text"),
        (" \n", "a unit is a text"),
        ("x" * 33, "at most 32 characters"),
        ("x" * 1000, "at most 32 characters"),
        ("a\x00b", "printable"),
        ("a\u202eb", "printable"),
        ("a\ud800", "printable"),
        (7, "a unit is a text"),
        (None, "a unit is a text"),
        ([], "a unit is a text"),
    ],
)
def test_what_is_no_short_printable_text_is_refused(text: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        unit(text)


@pytest.mark.parametrize("quantity", ["", "heart_rate", "Herzfrequenz", "other"])
def test_a_quantity_that_no_package_knows_is_a_text(quantity: str) -> None:
    check_labels("bpm", area="ward 7", quantity=quantity)
    assert conversion("bpm", quantity) == Conversion("bpm")


@pytest.mark.parametrize(
    ("area", "quantity", "reason"),
    [
        ("x" * 65, "", "area: expected at most 64 printable characters"),
        ("a\nb", "", "area: expected at most 64 printable characters"),
        ("", "x" * 33, "quantity: expected at most 32 printable characters"),
        ("", "load", "the unit of load is MW or MWh, not kW"),
        ("", "price", "price is not measured in kW"),
    ],
)
def test_labels_that_do_not_fit_are_refused(area: str, quantity: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_labels("kW", area=area, quantity=quantity)
