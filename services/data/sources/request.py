"""The requests of an HTTP source: dates filled in, secrets read from their files, and never shown."""

from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import httpx

from diem.process.auth import BadKeyFile, read_secret
from services.data.sources.fetch import PollFailed, Request, with_query
from services.data.sources.tables import HttpConfig, SecretFile
from services.data.sources.templates import expand


class _Filled(NamedTuple):
    """A request's URL, parameters and body for one day, without secrets."""

    url: str
    query: list[tuple[str, str]]
    body: str | None


def _fill(config: HttpConfig, day: date, there: ZoneInfo) -> _Filled:
    given = {name: value for name, value in config.query.items() if isinstance(value, str)}
    return _Filled(
        expand(config.url, day, there, in_url=True),
        [(name, expand(value, day, there)) for name, value in given.items()],
        None if config.body is None else expand(config.body, day, there),
    )


def request_key(config: HttpConfig, day: date, there: ZoneInfo) -> str:
    """Return what distinguishes the request for a day; the same for days with the same request."""
    return repr(_fill(config, day, there))


def make_request(config: HttpConfig, day: date, there: ZoneInfo, extra: Iterable[tuple[str, str]] = ()) -> Request:
    """Return the request of a source for a day; ``extra`` are further query parameters.

    Raises:
        PollFailed: a secret cannot be read, or not be sent.
    """
    secrets: list[str] = []
    headers = {name: _text(f"headers: {name}", value, secrets) for name, value in config.headers.items()}
    for name, text in headers.items():
        if not all(" " <= character <= "~" or character == "\t" for character in text):
            raise PollFailed(f"headers: {name}: it has a character that a header field cannot have")
    hidden = {
        name: _text(f"query: {name}", value, secrets)
        for name, value in config.query.items()
        if isinstance(value, SecretFile)
    }
    url, query, body = _fill(config, day, there)
    return Request(
        config.method,
        with_query(httpx.URL(url), [*query, *extra, *hidden.items()]),
        headers,
        None if body is None else body.encode(),
        "" if body is None else config.content_type,
        tuple(secrets),
        hidden,
    )


def _text(where: str, value: Any, secrets: list[str]) -> str:  # noqa: ANN401  # str or SecretFile
    if not isinstance(value, SecretFile):
        return str(value)
    try:
        secret = read_secret(Path(value.file))
    except BadKeyFile as error:
        raise PollFailed(f"{where}: {error.path}: {error.reason}") from None
    secrets.append(secret)
    return value.prefix + secret
