"""Media types of files to store."""

import pytest
import typer

from deploy.cli.media_types import PATCHES, UnknownType, alias, type_of_file
from diem.protocol.media_types import CSV, DOCUMENT, JSON_PATCH, SERIES


@pytest.mark.parametrize(
    ("file", "given", "of_series", "found"),
    [
        ("a.json", None, (), DOCUMENT),
        ("dir.d/A.JSON", None, (), DOCUMENT),
        ("a.json", None, ("--unit",), SERIES),
        ("a.csv", None, (), CSV),
        ("a.csv", None, ("--unit",), CSV),
        ("a.txt", None, (), "text/plain;charset=utf-8"),
        ("a.html", None, (), "text/html;charset=utf-8"),
        ("a.png", None, (), "image/png"),
        ("a.webmanifest", None, (), "application/manifest+json"),
        ("-", None, (), DOCUMENT),
        ("-", None, ("--area",), SERIES),
        ("-", "csv", ("--unit",), CSV),
        ("a.png", "series", ("--unit",), SERIES),
        ("a.json", "text", (), "text/plain;charset=utf-8"),
        ("a", "application/x-protobuf", (), "application/x-protobuf"),
        ("a.csv.gz", "application/gzip", (), "application/gzip"),
        ("a.txt", "text/plain", (), "text/plain"),
    ],
)
def test_type_is_given_or_that_of_the_name(
    file: str, given: str | None, of_series: tuple[str, ...], found: str
) -> None:
    assert type_of_file(file, b"", given, of_series) == found


@pytest.mark.parametrize(
    ("file", "fault"),
    [
        ("a", "a: its name has no suffix: add --type, as json, series, csv, text, or a media type such as image/png"),
        ("a.unheard-of", "the suffix .unheard-of is unknown"),
        ("a.csv.gz", "it is compressed; unpack it, or store it as it is: add --type, .* such as application/gzip"),
        (".json", "its name has no suffix"),
    ],
)
def test_type_is_never_guessed_by_the_content(file: str, fault: str) -> None:
    with pytest.raises(UnknownType, match=fault):
        type_of_file(file, b'{"unit":"MW"}', None)


@pytest.mark.parametrize("given", [None, "text"])
def test_text_of_another_charset_needs_its_name(given: str | None) -> None:
    with pytest.raises(UnknownType, match=r"it is not UTF-8: .*'text/plain;charset=iso-8859-1'"):
        type_of_file("a.txt", b"h\xe9llo", given)
    found = type_of_file("a.txt", b"h\xe9llo", "text/plain;charset=iso-8859-1")
    assert found == "text/plain;charset=iso-8859-1"


@pytest.mark.parametrize(("file", "given"), [("a.png", None), ("a.json", "json"), ("a.csv", "text")])
def test_options_of_series_contradict_other_types(file: str, given: str | None) -> None:
    with pytest.raises(typer.BadParameter, match=f"--unit is for series, and {file} is .*: add --type series or csv"):
        type_of_file(file, b"", given, ["--unit", "--area"])


def test_short_names_are_refused_where_unknown() -> None:
    assert alias("json-patch", PATCHES) == JSON_PATCH
    assert alias("application/x", PATCHES) == "application/x"
    with pytest.raises(typer.BadParameter, match=r"--type is merge, json-patch.* or a media type"):
        alias("xml", PATCHES)
