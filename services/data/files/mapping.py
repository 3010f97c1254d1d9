"""The mapping of a file's rows to endpoints: the keys of ``[source.mapping]`` and of presets."""

import codecs
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from services.data.files.names import check_template, fields_of
from services.data.files.time_formats import check_format
from services.data.toml_table import Table

ALL: Final = "*"
"""As ``value``: every column that no other key names."""
Format = Literal["csv", "xlsx", "json", "xml", "parquet"]
FORMATS: Final[dict[str, Format]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".xls": "xlsx",
    ".ods": "xlsx",
    ".json": "json",
    ".geojson": "json",
    ".xml": "xml",
    ".parquet": "parquet",
}
"""Formats by the ends of names."""
FILE_SUFFIXES: Final = (*FORMATS, ".gz", ".zip")
"""Ends of the names of files that are read with a mapping, in lower case."""


def _codec(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError:
        raise ValueError("expected the name of an encoding, such as cp1252, latin-1 or utf-16") from None


Column = Annotated[str, Field(min_length=1, max_length=200)]
Character = Annotated[str, Field(min_length=1, max_length=1)]
Text = Annotated[str, Field(max_length=64)]


class Mapping(Table):
    """A table ``[source.mapping]``. Columns are named as in the header; without one, 1, 2, and so on.

    Of JSON and XML, columns are paths of members below a row, such as ``price/amount``; those of the objects around it
    are named after these, such as ``Period/resolution``.
    """

    format: Literal["auto", Format] = Field(
        default="auto", description="auto: by the name of the file, else its Content-Type. xlsx: any workbook."
    )
    kind: Literal["series", "document"] = Field(
        default="series", description="document: every row is the JSON object of an endpoint."
    )

    encoding: Annotated[str, AfterValidator(_codec)] | None = Field(
        default=None, description="Of text, such as cp1252. Default: that of a byte order mark, else UTF-8."
    )
    member: str = Field(default="*", max_length=200, description="Pattern of the files in an archive to read.")
    sheet: str | None = Field(default=None, description="Sheet of a workbook. Default: the first.")

    delimiter: Character = Field(default=",", description="Between the cells of a line.")
    header: int = Field(default=1, ge=0, le=1000, description="Line of the header, counted from 1; 0: there is none.")
    footer: int = Field(default=0, ge=0, le=1000, description="Lines below the table, empty ones not counted.")
    section: str | None = Field(
        default=None, min_length=1, description="Of several tables: the text above one, which ends at an empty line."
    )
    table: list[Text] = Field(
        default=[], max_length=8, description="Of several tables: the first cells of every row of one."
    )
    comment: Character | None = Field(default=None, description="Lines that begin with it are left out.")
    rows: str = Field(
        default="", max_length=200, description="Path to the rows of JSON or XML: data/prices; * is any member."
    )
    where: dict[Column, str | list[str]] = Field(
        default={}, max_length=16, description="Only rows with one of these texts in these columns."
    )

    time: Column | list[Column] = Field(default="time", description="Column of the time, or columns to be joined.")
    time_format: Annotated[str, AfterValidator(check_format)] = Field(
        default="", max_length=64, description="As %d.%m.%Y %H:%M; epoch or epoch_ms. Default: ISO 8601."
    )
    interval: str | None = Field(
        default=None, min_length=1, max_length=8, description="Between the two times of an interval, the first taken."
    )
    stamp: Literal["start", "end"] = Field(default="start", description="Whether times are starts or ends of periods.")
    period: Column | None = Field(
        default=None, description="Column with the number of the period, from 1, counted from the time."
    )
    until: Column | None = Field(
        default=None, description="Column with an end, until which values stand for missing periods after them."
    )

    value: Column | list[Column] = Field(
        default="value", description="Column of the value, or columns; *: all others of the rows."
    )
    ignore: list[Column] = Field(default=[], max_length=200, description="Of value = '*': columns without values.")
    across: Literal["endpoint", "time", "period"] = Field(
        default="endpoint", description="Headings of several columns of values: endpoints, times of day, or periods."
    )
    decimal: Literal[".", ","] = Field(default=".", description="The decimal mark.")
    thousands: Character | None = Field(default=None, description="The mark between thousands.")
    gaps: list[Text] = Field(default=[], max_length=32, description="Texts of missing values, beside an empty one.")
    unit: Column | None = Field(default=None, description="Column of the unit.")
    units: dict[Column, Text] = Field(
        default={},
        max_length=200,
        description="Units of columns of values, by their headings, instead of those in these.",
    )
    resolution: Column | None = Field(default=None, description="Column of the resolution.")
    name: Annotated[str, AfterValidator(check_template)] = Field(
        default="",
        max_length=200,
        description="Of endpoints below the prefix: {column} is the heading of a value's column, {file} the name of "
        "the file, {other} the cell of the column other.",
    )
    numbers: list[Column] = Field(default=[], description="Columns of documents with numbers; others are texts.")
    duplicates: Literal["refuse", "first", "last"] = Field(
        default="refuse", description="Of several values at one time: refuse the file, or keep this one."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        is_document = self.kind == "document"
        is_named = bool(fields_of(self.name) - {"column"})
        for is_wrong, fault in (
            (self.decimal == self.thousands, "decimal and thousands are the same mark"),
            (self.section is not None and bool(self.table), "section and table exclude each other"),
            (bool(self.ignore) and self.value != ALL, "ignore needs value = '*'"),
            (self.across != "endpoint" and not self.is_wide, "across needs several columns of values: value = '*'"),
            (self.period is not None and self.across != "endpoint", "period and across exclude each other"),
            (self.until is not None and self.period is None, "until needs period"),
            (bool(self.units) and self.unit is not None, "unit and units exclude each other"),
            (is_document and not is_named, "kind = 'document' needs a name with a column of the row, such as {id}"),
            (bool(self.numbers) and not is_document, "numbers needs kind = 'document'"),
        ):
            if is_wrong:
                raise ValueError(fault)
        return self

    @property
    def is_wide(self) -> bool:
        """True if there may be several columns of values."""
        return self.value == ALL or not isinstance(self.value, str)

    @property
    def times(self) -> list[str]:
        """The columns of the time."""
        return [self.time] if isinstance(self.time, str) else self.time

    @property
    def is_several(self) -> bool:
        """True if rows or columns name endpoints."""
        return bool(fields_of(self.name)) or (self.is_wide and self.across == "endpoint")
