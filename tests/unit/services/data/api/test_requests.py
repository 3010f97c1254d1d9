"""Header fields of requests: content negotiation, conditions, media types."""

import pytest

from services.data.api.requests import accepts_gzip, choose, has_etag
from services.data.kinds import media_type


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("text/csv", "text/csv"),
        ("text/*", "text/csv"),
        ("text/csv, application/json", "application/json"),
        ("application/json;q=0.5, text/csv;q=0.8", "text/csv"),
        ("application/json;q=0, */*", "text/csv"),
        ("text/html, */*;q=0.1", "application/json"),
        ("TEXT/CSV", "text/csv"),
        ("image/png", None),
    ],
)
def test_the_representation_is_negotiated_by_quality(accept: str | None, expected: str | None) -> None:
    assert choose(accept, ("application/json", "text/csv")) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('"1-json"', True),
        ('"1-json-gzip"', True),
        ('W/"1-json--gzip"', True),
        ('"1-json;br"', True),
        ('"2-json-gzip"', False),
        ('"1-csv-gzip"', False),
        ('"1-json-gzip-gzip"', False),
        ('W/"1-json"', True),
        ('"0-json", "1-json"', True),
        ("*", True),
        ('"1-csv"', False),
        (None, False),
    ],
)
def test_etags_are_compared_weakly(header: str | None, expected: bool) -> None:
    assert has_etag(header, '"1-json"') is expected


def test_media_types_with_another_charset_are_refused() -> None:
    assert media_type("Application/JSON; charset=UTF-8") == "application/json"
    assert media_type('text/csv; charset="latin1"') == ""
    assert media_type("") == ""


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("gzip, deflate, br", True),
        ("br, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0, identity", False),
        ("identity", False),
        ("", False),
        (None, False),
    ],
)
def test_gzip_is_sent_only_where_accept_encoding_names_it(header: str | None, expected: bool) -> None:
    assert accepts_gzip(header) is expected
