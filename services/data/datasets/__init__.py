"""The one form that every dataset has, whatever it came from: endpoint, unit, resolution and points. Pure."""

from services.data.datasets.csv_form import CsvRow, CsvTable, parse_csv, read_table, render_csv, rows_to_datasets
from services.data.datasets.declared import Declared, EndpointDeclaration
from services.data.datasets.form import (
    MAX_BULK_BYTES,
    MAX_DATASET_BYTES,
    MAX_DATASETS,
    MAX_DEPTH,
    Dataset,
    Point,
    build,
)
from services.data.datasets.instants import Resolution, iso_seconds, parse_instant, parse_resolution
from services.data.datasets.json_form import parse_bulk, parse_single, parse_source, read_json
from services.data.datasets.points import points_of
from services.data.datasets.units import QUANTITIES, SOURCE_UNITS, UNITS
from services.data.datasets.zones import LocalClock, zone

__all__ = [
    "MAX_BULK_BYTES",
    "MAX_DATASETS",
    "MAX_DATASET_BYTES",
    "MAX_DEPTH",
    "QUANTITIES",
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
