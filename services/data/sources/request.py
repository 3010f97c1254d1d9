"""The requests of an HTTP source: dates filled in, secrets read from their files, and never shown."""

from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

import httpx

from diem.process.auth import BadKeyFile, read_secret
from services.data.kinds.series import zone
from services.data.sources.fetch import PollFailed, Request, with_query
from services.data.sources.tables import HttpConfig, SecretFile
from services.data.sources.templates import expand


def make_request(config: HttpConfig, day: date, extra: Iterable[tuple[str, str]] = ()) -> Request:
    """Return the request of a source for a day; ``extra`` are further query parameters.

    Raises:
        PollFailed: a secret cannot be read, or not be sent.
    """
    there = zone(config.zone)
    secrets: list[str] = []
    headers = {name: _text(f"headers: {name}", value, secrets) for name, value in config.headers.items()}
    for name, text in headers.items():
        if not all(" " <= character <= "~" or character == "\t" for character in text):
            raise PollFailed(f"headers: {name}: it has a character that a header field cannot have")
    query: list[tuple[str, str]] = []
    hidden: dict[str, str] = {}
    for name, value in config.query.items():
        text = _text(f"query: {name}", value, secrets)
        if isinstance(value, SecretFile):
            hidden[name] = text
        else:
            query.append((name, expand(text, day, there)))
    query += extra
    url = expand(config.url, day, there, in_url=True)
    body = None if config.body is None else expand(config.body, day, there)
    return Request(
        config.method,
        with_query(httpx.URL(url), [*query, *hidden.items()]),
        headers,
        None if body is None else body.encode(),
        "" if body is None else config.content_type,
        tuple(secrets),
        hidden,
        repr((url, query, body)),
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
