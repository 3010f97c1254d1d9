"""Converts files as a source with certain fields would, and gives points as Unix seconds and values."""

import tomllib
from collections.abc import Mapping as Fields
from datetime import datetime
from pathlib import Path
from textwrap import dedent
from typing import Any

import orjson

from services.data.files.convert import convert
from services.data.files.grid import InputFile
from services.data.files.mapping import Mapping
from services.data.files.presets import load_preset
from services.data.files.target import FileTarget
from services.data.kinds import Representation
from services.data.kinds.series import Declared, EndpointDeclaration, LocalClock
from tests.unit.services.data.files.publishers import Layout, Points, Series

PREFIX = "/x"


def fields_of(layout: Layout) -> dict[str, Any]:
    """Return the fields of a layout's source."""
    own = tomllib.loads(dedent(layout.toml))
    return load_preset(layout.preset, Path()) | own if layout.preset else own


def converted(file: InputFile, fields: Fields[str, Any]) -> dict[str, Series]:
    """Return the series of a file, by the names below :data:`PREFIX`; one alone may be at the prefix itself."""
    mapping = Mapping.model_validate(fields.get("mapping", {}))
    common = EndpointDeclaration(fields.get("unit"), fields.get("resolution"))
    clock = LocalClock(fields.get("zone", "UTC"))
    declared = Declared(None if mapping.is_several else PREFIX, common, clock=clock)
    made = convert(file, mapping, FileTarget(declared, PREFIX if mapping.is_several else ""))
    return {each.endpoint.removeprefix(PREFIX).removeprefix("/"): series_of(each) for each in made}


def series_of(made: Representation) -> Series:
    """Return the content of a representation."""
    return series_in(orjson.loads(made.content))


def series_in(document: Fields[str, Any]) -> Series:
    """Return a series in JSON."""
    return Series(document["unit"], document["resolution"], points_in(document))


def points_in(document: Fields[str, Any]) -> Points:
    """Return the points of a series in JSON."""
    return [(int(datetime.fromisoformat(point["time"]).timestamp()), point["value"]) for point in document["points"]]
