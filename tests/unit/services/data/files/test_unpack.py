"""Archives and encodings: members by pattern, formats, and hostile archives in one line within bounds."""

import gzip
import io
import struct
import tracemalloc
import zipfile
import zlib
from typing import Any

import pytest

from services.data.errors import DataError, InvalidDataset, MalformedBody
from services.data.files.grid import DEFAULT_LIMITS, FileLimits, InputFile
from services.data.files.mapping import Mapping
from services.data.files.unpack import Member, text_of, unpack

CSV = b"time,value\n2026-01-01,1\n"
MIB = 1024 * 1024


def archive(*files: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as made:
        for name, body in files:
            made.writestr(name, body)
    return target.getvalue()


def members(
    name: str, body: bytes, media_type: str = "", limits: FileLimits = DEFAULT_LIMITS, **mapping: Any
) -> list[Member]:
    return list(unpack(InputFile(name, body, media_type), Mapping.model_validate(mapping), limits))


def _id(value: object) -> str:
    """Return a part of a test's name, which must not have an archive's time."""
    return value[:20] if isinstance(value, str) else ""


def refused(name: str, body: bytes, limits: FileLimits = DEFAULT_LIMITS, **mapping: Any) -> str:
    """Return the one line of a refusal, made without much memory."""
    tracemalloc.start()
    with pytest.raises((InvalidDataset, MalformedBody)) as found:
        members(name, body, limits=limits, **mapping)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * MIB + len(body)
    line = str(found.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("name", "media_type", "body", "found"),
    [
        ("a.csv", "application/json", CSV, "csv"),
        ("a.dat", "", CSV, "csv"),
        ("a", "text/csv; charset=utf-8", b"{;1", "csv"),
        ("a", "application/problem+json", b"1", "json"),
        ("a", "", b'\xef\xbb\xbf {"a": 1}', "json"),
        ("a", "application/octet-stream", b"<?xml version='1.0'?><a/>", "xml"),
        ("a", "text/xml", b"<a/>", "xml"),
        ("a.csv", "text/csv", b"PAR1...", "parquet"),
        ("a.txt", "", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1...", "xlsx"),
        ("a.csv", "", archive(("[Content_Types].xml", b""), ("xl/workbook.xml", b"")), "xlsx"),
        ("a.xls", "application/vnd.ms-excel", CSV, "csv"),
        ("a", "", '{"a": 1}'.encode("utf-16"), "json"),
    ],
    ids=_id,
)
def test_the_format_is_that_of_the_name_the_media_type_or_the_first_bytes(
    name: str, media_type: str, body: bytes, found: str
) -> None:
    assert members(name, body, media_type) == [Member(name, found, body)]  # type: ignore[arg-type]  # compared only


def test_the_mapping_s_format_comes_first() -> None:
    assert members("a.csv", b"{}", "text/csv", format="json") == [Member("a.csv", "json", b"{}")]


@pytest.mark.parametrize(
    ("name", "body", "mapping", "reason"),
    [
        ("a.csv", b"PAR1", {"format": "csv"}, "this is Parquet, not a text of cells (key: format)"),
        ("a.xlsx", CSV, {"format": "xlsx"}, "this is a text of cells, not a workbook (xlsx, xls, ods) (key: format)"),
        ("a.csv", b"  <!DOCTYPE html><title>Login</title>", {}, "this is an HTML page, not data: "),
        ("a.json", b"<html>", {"format": "json"}, "this is an HTML page, not data: "),
        ("a.rar", b"Rar!", {}, "this is a RAR archive: give it as gzip, zip, or a plain file"),
        (
            "a.tar.gz",
            gzip.compress(bytes(257) + b"ustar"),
            {},
            "this is a tar archive: give its files as a zip archive",
        ),
    ],
    ids=_id,
)
def test_another_format_is_named(name: str, body: bytes, mapping: dict[str, Any], reason: str) -> None:
    assert reason in refused(name, body, **mapping)


def test_the_members_of_an_archive_are_chosen_by_a_pattern() -> None:
    body = archive(
        ("data/prices.csv", CSV),
        ("data/LOAD.CSV", CSV),
        ("readme.txt", b""),
        ("__MACOSX/prices.csv", b""),
        (".x", b""),
        ("./", b""),
    )
    assert [each.name for each in members("a.zip", body)] == ["data/prices.csv", "data/LOAD.CSV", "readme.txt"]
    assert members("a.zip", body, member="pri*") == [Member("data/prices.csv", "csv", CSV, "data/prices.csv")]
    assert [each.name for each in members("a", body, member="data/*")] == ["data/prices.csv", "data/LOAD.CSV"]
    assert refused("a.zip", body, member="x*") == "no file in the archive is like 'x*' (key: member)"


def test_archives_within_archives_are_read() -> None:
    inner = archive(("one.csv", CSV), ("two.txt", b""), method=zipfile.ZIP_STORED)
    body = archive(("inner.zip", inner), ("three.csv.gz", gzip.compress(CSV[:5]) + gzip.compress(CSV[5:])))
    assert members("a.zip", body, member="*.csv") == [
        Member("one.csv", "csv", CSV, "one.csv"),
        Member("three.csv", "csv", CSV, "three.csv.gz"),
    ]
    assert members("b.csv.GZ", gzip.compress(CSV)) == [Member("b.csv", "csv", CSV)]


def test_text_is_decoded_by_its_mark_the_mapping_or_as_utf_8() -> None:
    def text(body: bytes, **mapping: Any) -> str:
        return text_of(Member("x/a.csv", "csv", body, "a.csv"), Mapping.model_validate(mapping))

    assert text("\ufeffä".encode()) == "ä"
    assert text("ä".encode("utf-16"), encoding="cp1252") == "ä"
    assert text("ä€".encode("cp1252"), encoding="cp1252") == "ä€"
    with pytest.raises(MalformedBody, match=r"^a.csv: byte e4 in line 2 is not UTF-8: .* \(key: encoding\)$"):
        text("a\nä".encode("cp1252"))
    with pytest.raises(MalformedBody, match=r"NUL character: is it utf-16\? \(key: encoding\)"):
        text("ab".encode("utf-16-le"))


def test_a_stated_charset_holds_for_what_is_not_utf_8() -> None:
    def body(text: bytes, media_type: str, **mapping: Any) -> bytes:
        return members("a.csv", text, media_type, **mapping)[0].body

    latin = "ä".encode("latin-1")
    assert body(latin, "text/csv; charset=ISO-8859-1") == "ä".encode()
    assert body("ä".encode(), "text/csv; charset=ISO-8859-1") == "ä".encode()
    assert body(latin, "text/csv; charset=ISO-8859-1", encoding="cp1252") == latin
    assert body(latin, "text/csv; charset=nonsense") == latin


# Hostile archives.


def bomb() -> bytes:
    """Return a zip archive of one file that decodes to 200 MiB; but for its checksum, it is right."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    deflated = (packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)) * 200 + b"\x03\x00"
    made = bytearray(archive(("a.csv", deflated), method=zipfile.ZIP_STORED))
    for first, at in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        place = made.index(first) + at
        made[place : place + 2] = struct.pack("<H", zipfile.ZIP_DEFLATED)
        made[place + 14 : place + 18] = struct.pack("<L", 200 * MIB)
    return bytes(made)


def test_a_bomb_is_refused_before_it_is_decoded() -> None:
    body = bomb()
    assert refused("a.zip", body) == f"'a.csv' would have {200 * MIB} bytes of {len(body) - 108}"
    assert refused("a.zip", archive(("b.zip", body))).startswith("b.zip: 'a.csv' would have")
    slow = gzip.compress(bytes(MIB), compresslevel=9) * 200
    line = refused("a.csv.gz", slow)
    assert line == f"more than {200 * len(slow)} bytes when decompressed, of {len(slow)}"
    assert "when decompressed" in refused("a.zip", archive(("a.csv.gz", slow)))
    many = archive(*((f"{number}.csv", bytes(MIB)) for number in range(3)))
    line = refused("a.zip", many, FileLimits(decoded_bytes=2 * MIB))
    assert line == f"more than {2 * MIB} bytes in the archive when decompressed"


def test_what_is_decoded_of_all_archives_within_one_is_bounded() -> None:
    limits = FileLimits(decoded_bytes=5 * MIB)
    inner = archive(("b.csv", bytes(MIB)), ("c.csv", bytes(MIB)))
    assert len(members("a.zip", archive(("b.zip", inner)), limits=limits)) == 2
    many = archive(*((f"{number}.csv.gz", gzip.compress(bytes(MIB))) for number in range(6)))
    assert "when decompressed" in refused("a.zip", many, limits=limits)
    deep = CSV
    for _ in range(4):
        deep = gzip.compress(deep)
    assert refused("a", deep) == "archives within more than 2 archives"


def test_files_that_state_another_size_than_they_have_are_refused() -> None:
    body = archive(("a.csv", bytes(MIB)))
    smaller = body.replace(struct.pack("<L", MIB), struct.pack("<L", 1000))
    assert refused("a.zip", smaller) == "the zip archive is damaged or incomplete: Bad CRC-32 for file 'a.csv'"


def test_files_that_share_bytes_are_refused() -> None:
    first = archive(("a.csv", zlib.compress(bytes(range(256)) * 40)), method=zipfile.ZIP_STORED)
    with zipfile.ZipFile(io.BytesIO(first)) as made:
        start = made.start_dir
    entry, end = first[start:-22], first[-22:]
    end = end[:8] + struct.pack("<HHLL", 300, 300, len(entry) * 300, start) + end[20:]
    assert refused("a.zip", first[:start] + entry * 300 + end) == "files in the archive share the same bytes"


@pytest.mark.parametrize("name", ["../a.csv", "x/../../a.csv", "/etc/passwd", "C:/a.csv", "x\\..\\a.csv"])
def test_names_that_lead_out_of_an_archive_are_refused(name: str) -> None:
    assert f"the archive has a file {name!r}, outside of it" in refused("a.zip", archive((name, CSV)))


def test_an_encrypted_file_is_named() -> None:
    body = bytearray(archive(("a.csv", CSV)))
    for first in (b"PK\x03\x04", b"PK\x01\x02"):
        body[body.index(first) + (6 if first[2] == 3 else 8)] |= 1
    assert refused("a.zip", bytes(body)) == "'a.csv' is encrypted: repack the archive without a password"


def test_other_methods_are_named_as_they_decode_without_a_bound() -> None:
    assert "is compressed by method 14: repack it with deflate" in refused(
        "a.zip", archive(("a.csv", CSV), method=zipfile.ZIP_LZMA)
    )


def test_a_million_files_are_refused_by_their_count() -> None:
    entry = archive(("a", b""))
    start = entry.index(b"PK\x01\x02")
    body = entry[:start] + entry[start:-22] * 1_000_000 + entry[-22:]
    assert refused("a.zip", body) == "more than 1000 files in the archive"


@pytest.mark.parametrize("kind", ["zip", "gzip"])
def test_an_incomplete_or_damaged_archive_is_named(kind: str) -> None:
    body = archive(("a.csv", CSV * 100)) if kind == "zip" else gzip.compress(CSV * 100)
    for end in range(4, len(body) - 1):
        assert f"the {kind} archive is" in refused("a", body[:end])
    for place in range(30, 60):
        broken = bytearray(body)
        broken[place] ^= 0xFF
        try:
            members("a", bytes(broken))
        except DataError as error:
            assert "\n" not in str(error)  # most places, not all
