"""Files of sixteen publishers become exactly the points that they mean, by a preset or ten lines of TOML."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from services.data.files.grid import InputFile
from services.data.files.presets import load_preset, presets
from tests.unit.services.data.files.as_source import converted, fields_of
from tests.unit.services.data.files.publishers import ALL, Layout, entsoe, entsoe_xml

_LINES = 10
"""Most lines of TOML that a layout may need, without a preset."""
_JANUARY = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
_HOUR = 3600


@pytest.mark.parametrize("make", [*ALL, entsoe], ids=lambda make: make.__name__)
def test_a_file_of_a_publisher_becomes_its_points(make: Callable[[], Layout]) -> None:
    layout = make()
    found = converted(InputFile(layout.file, layout.body, layout.media_type), fields_of(layout))
    assert list(found) == list(layout.expected)
    for name, expected in layout.expected.items():
        assert (found[name].unit, found[name].resolution) == (expected.unit, expected.resolution)
        assert found[name].points == expected.points


def test_a_layout_needs_a_preset_or_ten_lines() -> None:
    layouts = [make() for make in ALL]
    assert [layout.case for layout in layouts] == [f"D{number}" for number in range(1, 18) if number != 14]
    for layout in layouts:
        assert bool(layout.preset) != bool(layout.toml)
        assert len(dedent(layout.toml).split("\n")) - 2 <= _LINES, layout.case


def test_local_times_are_tried_on_days_of_23_and_25_hours() -> None:
    for make in ALL:
        layout = make()
        if fields_of(layout).get("zone", "Australia/Brisbane") == "Australia/Brisbane":  # no summer time
            continue
        (first, *_) = layout.expected.values()
        per_hour = {"PT1H": 1, "PT30M": 2, "PT15M": 4}[first.resolution]
        assert len(first.points) == 48 * per_hour, layout.case


# Beside the feeds of the presets, as their comments say


def changed(name: str, mapping: dict[str, str]) -> dict[str, Any]:
    fields = load_preset(name, Path())
    return fields | {"unit": "MW", "mapping": fields["mapping"] | mapping}


def test_generation_of_energy_charts_is_a_list_of_named_arrays() -> None:
    fields = changed("energy-charts", {"rows": "production_types", "value": "data", "name": "{name}"})
    types = [{"name": "Solar", "data": [0, None]}, {"name": "Wind onshore", "data": [5.5, 6]}]
    body = json.dumps({"unix_seconds": [_JANUARY, _JANUARY + 900], "production_types": types, "deprecated": False})
    found = converted(InputFile("public_power.json", body.encode()), fields)
    assert {name: each.points for name, each in found.items()} == {
        "Solar": [(_JANUARY, 0), (_JANUARY + 900, None)],
        "Wind-onshore": [(_JANUARY, 5.5), (_JANUARY + 900, 6)],
    }


def test_load_of_entsoe_is_a_document_of_another_name() -> None:
    domain = "outBiddingZone_Domain.mRID"
    layout = entsoe_xml()
    body = layout.body.replace(b"in_Domain.mRID", domain.encode()).replace(b"price.amount", b"quantity")
    body = body.replace(b"Publication_MarketDocument", b"GL_MarketDocument").replace(b"publication", b"generationload")
    fields = changed("entsoe-xml", {"value": "quantity", "name": f"{{TimeSeries/{domain}}}"})
    found = converted(InputFile("load.xml", body), fields)
    assert {name: (each.unit, each.points) for name, each in found.items()} == {
        name: ("MW", each.points) for name, each in layout.expected.items()
    }


# The samples in the comments of the presets

_SAMPLES = {
    "aemo": {"NSW1": [(-10 * _HOUR, 45.2)], "SA1": [(-10 * _HOUR, -8.51)]},
    "caiso": {"TH_NP15_GEN-APND": [(8 * _HOUR, 33.25), (9 * _HOUR, 31.5)]},
    "dwd": {"TT_TU": [(0, 4.5), (_HOUR, None)], "RF_TU": [(0, 93), (_HOUR, 92)]},
    "eia": {"PGE/D": [(0, None), (_HOUR, 2100)]},
    "elexon": {"": [(0, 72.5), (_HOUR // 2, -3)]},
    "energy-charts": {"": [(-_HOUR, 90.1), (-_HOUR + 900, None)]},
    "entsoe": {"BZN-GR": [(-_HOUR, 93.1), (0, None)]},
    "entsoe-xml": {"10YGR-HTSO-----Y": [(23 * _HOUR, 93.1), (24 * _HOUR, 93.1), (25 * _HOUR, 88)]},
    "nord-pool": {"SE3": [(-_HOUR, 1050.25), (0, 1020)], "SE4": [(-_HOUR, None), (0, 998.7)]},
    "open-meteo": {"temperature_2m": [(0, 8.4), (_HOUR, None)]},
    "opsd": {
        "AT_load_actual_entsoe_transparency": [(0, 5946), (_HOUR, 5726.5)],
        "DE_solar_generation_actual": [(0, None), (_HOUR, 12)],
    },
    "smard": {
        "Deutschland-Luxemburg-Originalauflosungen": [(-_HOUR, 1002.16), (0, -0.5)],
        "Belgien-Originalauflosungen": [(-_HOUR, None), (0, 12)],
    },
}
"""Points of the samples, in seconds from the beginning of 2026 in UTC."""


@pytest.mark.parametrize("name", presets())
def test_the_sample_in_a_preset_is_read_by_it(name: str) -> None:
    text = (files("services.data.files.presets") / f"{name}.toml").read_text(encoding="utf-8")
    sample = "".join(
        line.removeprefix("#     ") for line in text.splitlines(keepends=True) if line.startswith("#     ")
    )
    suffix = {"<": "xml", "{": "json"}.get(sample[0], "csv")
    fields = load_preset(name, Path())
    body = sample.encode(fields["mapping"].get("encoding", "utf-8"))
    found = converted(InputFile(f"sample.{suffix}", body), fields)
    assert {key: [(at - _JANUARY, value) for at, value in each.points] for key, each in found.items()} == _SAMPLES[name]
