"""Workbooks: values of cells by their types, headers and sheets, and hostile ones in one line."""

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from services.data.errors import InvalidDataset, MalformedBody
from services.data.files.grid import Cell, FileLimits, Grid
from services.data.files.mapping import Mapping
from services.data.files.workbook import read_workbook
from tests.unit.services.data.files.workbooks import CLOCK, DURATION, MOMENT, cell, ods, ods_cell, rows, xls, xlsx

LIMITS = FileLimits()


def read(body: bytes, limits: FileLimits = LIMITS, **mapping: Any) -> Grid:
    return read_workbook(body, Mapping.model_validate(mapping), limits, "a.xlsx")


def table(grid: Grid) -> list[tuple[int, list[Cell]]]:
    """Return the rows of a grid with their numbers."""
    return [(place, list(row)) for chunk in grid.chunks for place, row in zip(chunk.places, chunk.rows, strict=True)]


PRICES = rows(("time", "Price [EUR/MWh]", "n"), ((45292.0, MOMENT), 1.5, 7), ((45292 + 1 / 24, MOMENT), None, 8.25))


def test_cells_keep_their_types_and_times_are_texts() -> None:
    content = rows(
        ("time", "clock", "sum", "text", "whole", "part"),
        ((45292 + 61 / 86400, MOMENT), (0.5, CLOCK), (25 / 24, DURATION), "x", 3.0, 0.1),
    )
    content += f'<row r="3">{cell("A3", 1e300)}<c r="B3" t="b"><v>1</v></c><c r="C3" t="e"><v>#N/A</v></c></row>'
    grid = read(xlsx({"S": content}))
    assert (grid.columns, grid.place, grid.file) == (
        ["time", "clock", "sum", "text", "whole", "part"],
        "row",
        "a.xlsx",
    )
    assert table(grid) == [
        (2, ["2024-01-01T00:01:01", "12:00:00", "25:00:00", "x", 3, 0.1]),
        (3, [1e300, True, None, None, None, None]),
    ]


@pytest.mark.parametrize("minute", [1, 7, 15, 20])
def test_times_are_exact_though_they_are_stored_as_days(minute: int) -> None:
    days = [45292 + minute * number / 1440 for number in range(1, 500)]
    grid = read(xlsx({"S": rows(*(((day, MOMENT),) for day in days))}), header=0)
    found = [str(row[0]) for _, row in table(grid)]
    assert found[0] == f"2024-01-01T00:{minute:02d}:00"
    assert {text[16:] for text in found} <= {":00", ""}


def test_the_header_is_the_first_row_with_cells_from_its_number_on() -> None:
    content = (
        rows(("Title",), (None,), first=2)
        + rows(("time", "value"), ("a", 1), first=5)
        + rows(("b", 2, "note"), first=9)
    )
    grid = read(xlsx({"S": content}), header=4)
    assert (grid.columns, table(grid)) == (["time", "value"], [(6, ["a", 1]), (9, ["b", 2])])
    assert read(xlsx({"S": content}), header=0).columns == ["1", "2", "3"]
    with pytest.raises(InvalidDataset, match=r"^a.xlsx: the sheet has no row from 10 on \(keys: header, sheet\)$"):
        read(xlsx({"S": content}), header=10)


def test_a_sheet_that_begins_elsewhere_keeps_the_numbers_of_its_columns() -> None:
    content = f'<row r="3">{cell("B3", "a")}{cell("C3", 1)}</row>'
    assert table(read(xlsx({"S": content}), header=0)) == [(3, [None, "a", 1])]


def test_a_section_ends_at_an_empty_row() -> None:
    content = rows(("Load", "x"), ("time", "MW"), ("a", 1)) + rows(
        ("Wind",), ("time", "MW"), ("b", 2), ("c", 3), first=5
    )
    content += rows(("d", 4), first=10)
    grid = read(xlsx({"S": content}), section="Wind")
    assert table(grid) == [(7, ["b", 2]), (8, ["c", 3])]
    assert table(read(xlsx({"S": content}), section="Wind", comment="c")) == [(7, ["b", 2])]
    with pytest.raises(InvalidDataset, match=r"no row begins with 'Solar' \(key: section\)"):
        read(xlsx({"S": content}), section="Solar")
    with pytest.raises(InvalidDataset, match=r"\(key: table\)"):
        read(xlsx({"S": content}), table=["D"])


def test_a_sheet_is_chosen_by_its_name() -> None:
    body = xlsx({"Info": rows(("x",)), "Prices": PRICES})
    assert read(body).columns == ["x"]
    assert len(table(read(body, sheet="Prices"))) == 2
    with pytest.raises(InvalidDataset, match=r"^a.xlsx: there is no sheet 'prices', but Info, Prices \(key: sheet\)$"):
        read(body, sheet="prices")


def test_times_are_written_as_the_mapping_reads_them() -> None:
    body = xlsx({"S": PRICES})
    assert [row[0] for _, row in table(read(body, time_format="%d.%m.%Y %H:%M"))] == [
        "01.01.2024 00:00",
        "01.01.2024 01:00",
    ]
    assert [row[0] for _, row in table(read(body))] == ["2024-01-01", "2024-01-01T01:00:00"]
    assert table(read(body, time=["a", "b"], time_format="%d.%m.%Y %H:%M"))[0][1][0] == "2024-01-01"


def test_opendocument_and_old_workbooks_are_read() -> None:
    cells = ods_cell("date", "2024-01-01T01:00:00") + ods_cell("time", "PT25H00M00S") + ods_cell("float", 1.5)
    empty = '<table:table-cell table:number-columns-repeated="16384"/>'
    below = f'<table:table-row table:number-rows-repeated="1048575">{empty}</table:table-row>'
    content = f"<table:table-row>{cells}</table:table-row>{below}"
    assert table(read(ods({"S": content}), header=0)) == [(1, ["2024-01-01T01:00:00", "25:00:00", 1.5])]
    grid = read(xls((("time", "value"), ("a", 1.5), ("b", 2.0))))
    assert (grid.columns, table(grid)) == (["time", "value"], [(2, ["a", 1.5]), (3, ["b", 2])])


def test_formulas_are_read_by_their_stored_values() -> None:
    content = (
        f'<row r="1">{cell("A1", 5, formula="1+1")}<c r="B1" t="str"><f>""</f><v></v></c>{cell("C1", style=1)}</row>'
    )
    body = xlsx({"S": content}, {"xl/externalLinks/externalLink1.xml": "<!DOCTYPE x SYSTEM 'file:///etc/passwd'><x/>"})
    assert table(read(body, header=0)) == [(1, [5, None])]


@pytest.mark.parametrize("value", ["", "<v/>", "<v></v>", "<v />"])
def test_a_formula_without_a_stored_value_is_named(value: str) -> None:
    body = xlsx({"S": f'<row r="1"><c s="0" r="B1"><f ca="1">WEBSERVICE("http://x")</f>{value}</c></row>', "T": PRICES})
    reason = r"^a.xlsx: the formula in B1 has no stored value: open the workbook in a spreadsheet program and save it$"
    with pytest.raises(InvalidDataset, match=reason):
        read(body)
    assert len(table(read(body, sheet="T"))) == 2
    with pytest.raises(InvalidDataset, match="a formula has no stored value"):
        read(ods({"S": '<table:table-row><table:table-cell table:formula="of:=1"/></table:table-row>'}))


# Hostile workbooks.

FIRST = rows((1,))
FAR = {
    "row": f'{FIRST}<row r="1048576">{cell("A1048576", 1)}</row><row r="5">{cell("XFD5", 1)}</row>',
    "column": f'<row r="1">{cell("A1", 1)}{cell("ZZZZZZ1", 1)}</row>',
    "number": f'{FIRST}<row r="99999999999">{cell("A99999999999", 1)}</row>',
    "formula": f'{FIRST}<row r="1048576">{cell("XFD1048576", 1, formula="1")}</row>',
}


@pytest.mark.parametrize("content", FAR.values(), ids=FAR)
def test_cells_far_apart_are_refused(content: str) -> None:
    refused(lambda: read(xlsx({"S": content})), "a.xlsx: the sheet has more than 20000000 cells or 10000 columns: ")


@pytest.mark.parametrize("dimension", ["A1:XFD1048576", "A1:ZZZZZZZ99999999999", "nonsense"])
def test_what_a_sheet_claims_of_its_size_is_not_used(dimension: str) -> None:
    begin = time.process_time()
    body = xlsx({"S": FIRST}, dimension=dimension)
    try:
        assert table(read(body, header=0)) == [(1, [1])]
    except MalformedBody as error:
        assert dimension == "nonsense", error
    assert time.process_time() - begin < 1


def test_cells_without_a_value_do_not_count() -> None:
    content = f'{FIRST}<row r="1048576"><c r="XFD1048576" s="1"/></row>'
    assert table(read(xlsx({"S": content}), header=0)) == [(1, [1])]


@pytest.mark.parametrize("repeated", ["columns", "rows", "both"])
def test_repeated_cells_are_refused(repeated: str) -> None:
    one = ods_cell("float", 1, 'table:number-columns-repeated="1000000000"' if repeated != "rows" else "")
    row = 'table:number-rows-repeated="1000000000"' if repeated != "columns" else ""
    body = ods({"S": f"<table:table-row {row}>{one}</table:table-row>"})
    refused(lambda: read(body), "the sheet has more than 20000000 cells or 10000 columns")


def test_an_old_workbook_whose_sectors_form_a_ring_is_refused() -> None:
    body = bytearray(xls((("time", "value"), ("a", 1.5))))
    body[512 + 4 * 3 : 512 + 4 * 4] = struct.pack("<L", 2)
    refused(lambda: read(bytes(body)), "not a workbook, or a damaged one: its sectors form a ring")


def test_other_bounds_are_named() -> None:
    refused(lambda: table(read(xlsx({"S": PRICES}), FileLimits(rows=1))), "a.xlsx: more than 1 rows: split the file")
    bomb = xlsx({"S": FIRST}, {"xl/sharedStrings.xml": bytes(20 * 1024 * 1024)})
    refused(lambda: read(bomb), "'xl/sharedStrings.xml' would have 20971520 bytes")
    laughs = '<!DOCTYPE x [<!ENTITY a "ha">]><x>&a;</x>'
    refused(
        lambda: read(xlsx({"S": FIRST}, {"xl/workbook.xml": laughs})), "a document type (<!DOCTYPE ...>) is not read"
    )


@pytest.mark.parametrize(
    "others",
    [
        {"xl/worksheets/sheet1.xml": "<worksheet><sheetData><row><c><v>1</c>"},
        {"xl/worksheets/sheet1.xml": '<worksheet><sheetData><c r="A1" t="s"><v>7</v></c></sheetData></worksheet>'},
        {"xl/_rels/workbook.xml.rels": "<Relationships/>"},
        {"xl/styles.xml": "<styleSheet><cellXfs"},
        {"xl/workbook.xml": "<workbook"},
    ],
)
def test_a_damaged_workbook_is_named(others: dict[str, str | bytes]) -> None:
    body = xlsx({"S": FIRST}, others)
    refused(lambda: table(read(body, header=0)), "a.xlsx")


def test_incomplete_workbooks_are_named() -> None:
    for body in (xlsx({"S": PRICES}), ods({"S": ""}), xls((("time",),))):
        for end in range(8, len(body) - 1, 1 + len(body) // 50):
            try:
                table(read(body[:end]))
            except (InvalidDataset, MalformedBody) as error:
                assert str(error).startswith("a.xlsx: "), error  # a table may be complete


def refused(attempt: Callable[[], object], reason: str) -> None:
    begin = time.process_time()
    with pytest.raises((InvalidDataset, MalformedBody)) as found:
        attempt()
    assert time.process_time() - begin < 1
    assert reason in str(found.value)
    assert "\n" not in str(found.value)
