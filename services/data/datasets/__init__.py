"""Datasets, the one kind of data of an endpoint: series with unit, resolution and points, in canonical form. Pure.

Reading order: ``times`` and ``units``, ``form`` (a valid dataset, and declarations), ``json_form`` and ``csv_form``.
"""

from services.data.datasets.csv_form import CsvRow, CsvTable, parse_csv, read_table, render_csv, rows_to_datasets
from services.data.datasets.form import (
    MAX_BULK_BYTES,
    MAX_DATASET_BYTES,
    MAX_DATASETS,
    MAX_DEPTH,
    SMALLER,
    Dataset,
    Declared,
    EndpointDeclaration,
    Point,
    build,
    check_description,
)
from services.data.datasets.json_form import parse_bulk, parse_single, parse_source, points_of, read_json
from services.data.datasets.times import LocalClock, Resolution, iso_seconds, parse_instant, parse_resolution, zone
from services.data.datasets.units import QUANTITIES, SOURCE_UNITS, UNITS

__all__ = [
    "MAX_BULK_BYTES",
    "MAX_DATASETS",
    "MAX_DATASET_BYTES",
    "MAX_DEPTH",
    "QUANTITIES",
    "SMALLER",
    "SOURCE_UNITS",
    "UNITS",
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
    "zone",
]
