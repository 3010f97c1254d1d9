"""The kind ``series``: datasets with unit, resolution and points, in canonical form.

Reading order: ``times``, ``units``, ``quantities``, ``form`` (a valid dataset, and declarations), ``json_form`` and
``csv_form``, ``points_patch``, and ``kind``, which joins them.
"""

from services.data.kinds.series.csv_form import CsvRow, CsvTable, parse_csv, read_table, render_csv, rows_to_datasets
from services.data.kinds.series.form import (
    WRITTEN_TOGETHER,
    Dataset,
    Declared,
    EndpointDeclaration,
    Point,
    build,
    check_description,
)
from services.data.kinds.series.json_form import parse_bulk, parse_single, parse_source, points_of, read_json
from services.data.kinds.series.times import LocalClock, Resolution, iso_seconds, parse_instant, parse_resolution, zone
from services.data.kinds.series.units import Conversion, unit

__all__ = [
    "WRITTEN_TOGETHER",
    "Conversion",
    "CsvRow",
    "CsvTable",
    "Dataset",
    "Declared",
    "EndpointDeclaration",
    "LocalClock",
    "Point",
    "Resolution",
    "build",
    "check_description",
    "iso_seconds",
    "parse_bulk",
    "parse_csv",
    "parse_instant",
    "parse_resolution",
    "parse_single",
    "parse_source",
    "points_of",
    "read_json",
    "read_table",
    "render_csv",
    "rows_to_datasets",
    "unit",
    "zone",
]
