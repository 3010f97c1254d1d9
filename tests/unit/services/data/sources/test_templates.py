"""Dates in URLs, parameters and bodies."""

import re
from datetime import date

import pytest

from services.data.kinds.series import zone
from services.data.sources.templates import check_body, check_template, expand, offsets

ATHENS = zone("Europe/Athens")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("/{date:%Y/%m}/{date:%Y%m%d}.csv", "/2026/03/20260329.csv"),
        ("{date}", "2026-03-29"),
        ("{date-1d:%d.%m.%Y}..{date+2d:%-d.%-m.%y}", "28.03.2026..31.3.26"),
        ("{date-29d}", "2026-02-28"),
        # The day has 23 hours.
        ("{utc:%Y%m%d%H%M}-{utc+1d:%Y%m%d%H%M}", "202603282200-202603292100"),
        ("{utc}", "2026-03-28T22:00:00Z"),
        ("{utc:%s}/{date:%s}", "1774735200/1774735200"),
        ("{date:%Y-%m-%dT%H:%M%z}", "2026-03-29T00:00+0200"),
        ("{date:100%%}", "100%"),
        ("no date", "no date"),
    ],
)
def test_dates_are_those_of_the_day_in_the_zone(template: str, expected: str) -> None:
    assert expand(check_template(template), date(2026, 3, 29), ATHENS) == expected


def test_dates_in_a_url_are_percent_encoded() -> None:
    made = expand("http://a.example/?from={date:%Y-%m-%dT%H:%M%z}&x=%20", date(2026, 3, 29), ATHENS, in_url=True)
    assert made == "http://a.example/?from=2026-03-29T00:00%2B0200&x=%20"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{dat:%Y}", "{dat:%Y} is not a date such as {date:%Y-%m-%d}, {date-1d:%Y%m%d} or {utc"),
        ("{date-1:%Y}", "{date-1:%Y} is not a date"),
        ("{date-1h}", "is not a date"),
        ("{date:}", "is not a date"),
        ("{KEY}", "is not a date"),
        ("{date:%Q}", "%Q in {date:%Q} is unknown: use %Y %m"),
        ("{date:%-Y}", "%-Y in {date:%-Y} is unknown"),
    ],
)
def test_what_looks_like_a_date_and_is_none_is_refused(template: str, expected: str) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        check_template(template)


def test_braces_of_a_body_may_be_those_of_json() -> None:
    body = '{"from": "{date}", "of": {"a": {}}, "{dates}": 1}'
    assert expand(check_body(body), date(2026, 1, 2), ATHENS) == body.replace("{date}", "2026-01-02")
    with pytest.raises(ValueError, match="is not a date"):
        check_body('{"from": "{date-1h}"}')


def test_offsets_are_those_of_all_dates() -> None:
    assert offsets("{date-1d}/{utc+2d:%s}/{date:%Y}") == [-1, 2, 0]
    assert offsets("none") == []
