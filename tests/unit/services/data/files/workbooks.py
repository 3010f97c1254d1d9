"""Makes workbooks, part by part, so that tests can break each."""

import io
import struct
import zipfile
from collections.abc import Mapping

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
STYLES = (
    f'<styleSheet xmlns="{_MAIN}"><numFmts count="1"><numFmt numFmtId="165" formatCode="[h]:mm:ss"/></numFmts>'
    '<cellXfs count="4"><xf numFmtId="0"/><xf numFmtId="22"/><xf numFmtId="165"/><xf numFmtId="20"/></cellXfs>'
    "</styleSheet>"
)
"""Of cells: 1 is a date with time, 2 a duration, 3 a time of day."""
MOMENT, DURATION, CLOCK = 1, 2, 3


def cell(place: str, value: object = None, style: int = 0, formula: str | None = None) -> str:
    """Return a cell; a text value is written in place."""
    made = "" if formula is None else f"<f>{formula}</f>"
    if isinstance(value, str):
        return f'<c r="{place}" s="{style}" t="inlineStr">{made}<is><t>{value}</t></is></c>'
    return f'<c r="{place}" s="{style}">{made}{"" if value is None else f"<v>{value}</v>"}</c>'


def rows(*table: tuple[object, ...], first: int = 1) -> str:
    """Return rows of cells from the column A on; None is no cell, and a pair is a value and its style."""
    made = []
    for number, values in enumerate(table, start=first):
        cells = "".join(
            cell(f"{'ABCDEFGHIJ'[index]}{number}", *(value if isinstance(value, tuple) else (value,)))
            for index, value in enumerate(values)
            if value is not None
        )
        made.append(f'<row r="{number}">{cells}</row>')
    return "".join(made)


def xlsx(sheets: Mapping[str, str], others: Mapping[str, str | bytes] = {}, dimension: str = "A1") -> bytes:
    """Return a workbook of sheets, each as its rows."""
    head = '<?xml version="1.0" encoding="UTF-8"?>'
    relation = '<Relationship Id="r{0}" Type="' + _OFFICE + '/worksheet" Target="worksheets/sheet{0}.xml"/>'
    parts: dict[str, str | bytes] = {
        "[Content_Types].xml": f'{head}<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
        "_rels/.rels": f'{head}<Relationships xmlns="{_PACKAGE}"><Relationship Id="b" Type="{_OFFICE}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'{head}<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>'
        + "".join(f'<sheet name="{name}" sheetId="{at}" r:id="r{at}"/>' for at, name in enumerate(sheets, start=1))
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'{head}<Relationships xmlns="{_PACKAGE}">'
        + "".join(relation.format(at) for at in range(1, len(sheets) + 1))
        + "</Relationships>",
        "xl/styles.xml": head + STYLES,
    }
    for at, content in enumerate(sheets.values(), start=1):
        sheet = f'<dimension ref="{dimension}"/><sheetData>{content}</sheetData>'
        parts[f"xl/worksheets/sheet{at}.xml"] = f'{head}<worksheet xmlns="{_MAIN}">{sheet}</worksheet>'
    return _zip(parts | dict(others))


def ods(sheets: Mapping[str, str]) -> bytes:
    """Return an OpenDocument workbook of sheets, each as its rows."""
    spaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
    )
    tables = "".join(f'<table:table table:name="{name}">{content}</table:table>' for name, content in sheets.items())
    return _zip(
        {
            "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
            "META-INF/manifest.xml": '<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>',
            "content.xml": f"<office:document-content {spaces}><office:body><office:spreadsheet>{tables}"
            "</office:spreadsheet></office:body></office:document-content>",
        }
    )


def ods_cell(kind: str, value: object, more: str = "") -> str:
    """Return a cell of an OpenDocument workbook."""
    name = {"float": "value", "date": "date-value", "time": "time-value", "string": "string-value"}[kind]
    values = f'office:value-type="{kind}" office:{name}="{value}"'
    return f"<table:table-cell {values} {more}><text:p>{value}</text:p></table:table-cell>"


def xls(table: tuple[tuple[object, ...], ...]) -> bytes:
    """Return a workbook of Excel 97, of one sheet named S: BIFF8 in a compound file."""

    def record(kind: int, body: bytes) -> bytes:
        return struct.pack("<HH", kind, len(body)) + body

    cells = b""
    for row, values in enumerate(table):
        for column, value in enumerate(values):
            place = struct.pack("<HHH", row, column, 0)
            if isinstance(value, str):
                cells += record(0x204, place + struct.pack("<HB", len(value), 0) + value.encode("latin-1"))
            else:
                cells += record(0x203, place + struct.pack("<d", value))
    end = record(0x0A, b"")
    begin = record(0x809, struct.pack("<HHHHLL", 0x600, 5, 0, 0, 0, 0))
    at = len(begin) + len(end) + 13
    book = begin + record(0x85, struct.pack("<LBBBB", at, 0, 0, 1, 0) + b"S") + end
    book += record(0x809, struct.pack("<HHHHLL", 0x600, 0x10, 0, 0, 0, 0)) + cells + end
    book = book.ljust(max(4096, -(-len(book) // 512) * 512), b"\0")
    sectors = len(book) // 512
    free, last, table_mark = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
    chain = [table_mark, last, *range(3, sectors + 2), last]
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6) + bytes(6)
    header += struct.pack("<LLLLLLLLL", 0, 1, 1, 0, 4096, last, 0, last, 0) + struct.pack("<109L", 0, *[free] * 108)

    def entry(name: str, kind: int, child: int, start: int, size: int) -> bytes:
        text = name.encode("utf-16-le") + b"\0\0"
        made = text.ljust(64, b"\0") + struct.pack("<HBBLLL", len(text), kind, 1, free, free, child) + bytes(36)
        return made + struct.pack("<LQ", start, size)

    directory = entry("Root Entry", 5, 1, last, 0) + entry("Workbook", 2, free, 2, len(book)) + bytes(256)
    return header + struct.pack("<128L", *chain, *[free] * (128 - len(chain))) + directory + book


def _zip(parts: Mapping[str, str | bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return target.getvalue()
