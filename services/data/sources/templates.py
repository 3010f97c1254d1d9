"""Dates in URLs, query parameters and bodies: ``{date:%Y%m%d}``, ``{date-1d:%Y-%m-%d}``, ``{utc:%Y%m%d%H%M}``. Pure.

In URLs, ``{rest}`` stands for an endpoint below the prefix.
"""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final
from urllib.parse import quote
from zoneinfo import ZoneInfo

_FIELD: Final = re.compile(r"\{(?P<name>date|utc)(?:(?P<days>[+-]\d{1,4})d)?(?::(?P<form>[^{}]+))?\}", re.ASCII)
_BRACES: Final = re.compile(r"\{[^{}]*\}")
_MEANT: Final = re.compile(r"\{(?:date|utc)\b[^{}]*\}")
_DIRECTIVE: Final = re.compile(r"%(-?.)", re.DOTALL)
_DIRECTIVES: Final = frozenset({*"YymdjHMSzVGubBaAs%", "-m", "-d", "-j", "-H"})
_DEFAULTS: Final = {"date": "%Y-%m-%d", "utc": "%Y-%m-%dT%H:%M:%SZ"}
_FORMS: Final = "{date:%Y-%m-%d}, {date-1d:%Y%m%d} or {utc:%Y-%m-%dT%H:%MZ}"


REST: Final = "{rest}"
"""In a URL: the name of an endpoint after the prefix and its slash."""


def check_url(text: str) -> str:
    """Return a URL in which all braces are dates or :data:`REST`. Raises ValueError."""
    try:
        check_template(text.replace(REST, ""))
    except ValueError as error:
        raise ValueError(f"{error}, or {REST}, the endpoint's name after the prefix") from None
    return text


def expand_rest(url: str, endpoint: str, prefix: str) -> str:
    """Return a URL for an endpoint below a prefix; its segments are percent-encoded, and stay segments.

    A valid name has no ``.`` and ``..`` (:mod:`diem.protocol.endpoints`), so that they stay below those of the URL.
    """
    return url.replace(REST, quote(endpoint.removeprefix(f"{prefix}/"), safe="/"))


def check_template(text: str) -> str:
    """Return a text in which all braces are dates. Raises ValueError."""
    return _check(text, _BRACES)


def check_body(text: str) -> str:
    """Return a text whose braces may have other meanings, as in JSON. Raises ValueError for an invalid date."""
    return _check(text, _MEANT)


def _check(text: str, braces: re.Pattern[str]) -> str:
    for found in braces.findall(text):
        match = _FIELD.fullmatch(found)
        if match is None:
            raise ValueError(f"{found[:40]} is not a date such as {_FORMS}")
        for directive in _DIRECTIVE.findall(match["form"] or ""):
            if directive not in _DIRECTIVES:
                raise ValueError(f"%{directive} in {found[:40]} is unknown: use %Y %m %d %H %M %S %j %y %b %z or %s")
    return text


def offsets(text: str) -> list[int]:
    """Return the distance in days of every date in a template."""
    return [int(match["days"] or 0) for match in _FIELD.finditer(text)]


def expand(text: str, day: date, zone: ZoneInfo, *, in_url: bool = False) -> str:
    """Return a template's text for ``day``.

    ``{date}`` is the day, and ``{utc}`` the instant in UTC at which it begins in ``zone``. ``in_url``: what is put in
    is percent-encoded.
    """

    def one(match: re.Match[str]) -> str:
        at = start_of(day + timedelta(days=int(match["days"] or 0)), zone)
        made = _write(at if match["name"] == "date" else at.astimezone(UTC), match["form"] or _DEFAULTS[match["name"]])
        return quote(made, safe="/:") if in_url else made

    return _FIELD.sub(one, text)


def start_of(day: date, zone: ZoneInfo) -> datetime:
    """Return the time at which a day begins in a zone."""
    return datetime(day.year, day.month, day.day, tzinfo=zone)


def _write(at: datetime, form: str) -> str:
    # Not all platforms have %s, and those count it in the machine's zone.
    return _DIRECTIVE.sub(lambda each: str(int(at.timestamp())) if each[1] == "s" else at.strftime(each[0]), form)
