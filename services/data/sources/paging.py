"""Finds the next page of an answer: a link or a cursor in JSON, the Link field, or the number of the page. Pure."""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

import httpx
import orjson

from services.data.sources.fetch import Answer, PollFailed, Request, check_target
from services.data.sources.tables import HttpConfig, PagesTable

NO_CONTENT: Final = 204
ABSENT: Final = frozenset({NO_CONTENT, 404, 410})
"""Statuses of a page or a day that there is not."""

MakeRequest = Callable[[list[tuple[str, str]]], Request]
"""Makes the request with these parameters added."""


class Pages:
    """The pages of one answer, one by one; bounded by ``pages.most`` and, all together, ``max_bytes``.

    A configuration without ``pages`` has a single one.
    """

    def __init__(self, config: HttpConfig, make: MakeRequest) -> None:
        self._pages = config.pages
        self._max_bytes = config.max_bytes
        self._rows = config.rows
        self._redirects = config.redirects
        self._make = make
        self._number = config.pages.first if config.pages else 0
        self._seen: set[bytes] = set()
        self.answers: list[Answer] = []
        self.request: Request | None = self._numbered(config.pages) if config.pages else make([])
        """The next request; None after the last page."""

    def ends(self, status: int) -> bool:
        """Return whether an answer with this status means that there is no further page."""
        return self._pages is not None and self._pages.is_numbered and bool(self.answers) and status in ABSENT

    def add(self, answer: Answer) -> None:
        """Add the answer to :attr:`request`, and find the next one.

        Raises:
            PollFailed: there are too many pages or bytes, pages repeat, or the next one is not to be found.
        """
        pages, self.request = self._pages, None
        if pages is None:
            self.answers.append(answer)
            return
        is_last = pages.is_numbered and self._is_beyond(answer)
        if is_last and self.answers:
            return
        self.answers.append(answer)
        if sum(len(each.body) for each in self.answers) > self._max_bytes:
            raise PollFailed(f"the pages have more than {self._max_bytes} bytes together (max_bytes)")
        if pages.is_numbered:
            self._check_new(answer.body, f"is {pages.parameter} the name of its parameter?")
        following = None if is_last else self._following(pages, answer)
        if following is not None and len(self.answers) >= pages.most:
            raise PollFailed(f"there are more than {pages.most} pages (pages: most)")
        self.request = following

    def _numbered(self, pages: PagesTable) -> Request:
        return self._make([(pages.parameter, str(self._number))] if pages.is_numbered else [])

    def _following(self, pages: PagesTable, answer: Answer) -> Request | None:
        if pages.is_numbered:
            self._number += pages.step
            return self._numbered(pages)
        target = answer.next_link if pages.link else _member(_json(answer), pages.next)
        if target is None or target is False or target == "":
            return None
        if pages.parameter:
            self._check_new(str(target).encode(), "its cursor was there before")
            return self._make([(pages.parameter, str(target))])
        if not isinstance(target, str):
            raise PollFailed(f"pages: {pages.next} is not a URL: if it is a cursor, give its parameter")
        try:
            url = answer.url.join(target).copy_with(fragment=None)
        except (httpx.InvalidURL, ValueError):
            raise PollFailed("pages: the next page has an invalid address") from None
        self._check_new(str(url).encode(), "its address was there before")
        own = self._make([])
        check_target(url, own.url, self._redirects, "the next page is")
        return own.following(url)

    def _is_beyond(self, answer: Answer) -> bool:
        rows = self._rows
        if answer.body.lstrip()[:1] in {b"{", b"["} and not isinstance(_rows(answer, rows), list):
            raise PollFailed("pages: there is no array of rows in the answer: give its path (rows)")
        return is_empty(answer, rows)

    def _check_new(self, text: bytes, hint: str) -> None:
        """Raise PollFailed if a page was there before, so that the pages would never end."""
        digest = blake2b(text, digest_size=16).digest()
        if digest in self._seen:
            raise PollFailed(f"pages: page {len(self.answers)} repeats an earlier one: {hint}")
        self._seen.add(digest)


def _json(answer: Answer) -> Any:  # noqa: ANN401  # any JSON value
    try:
        return orjson.loads(answer.utf8)
    except orjson.JSONDecodeError as error:
        raise PollFailed(f"pages: the answer is not JSON ({error})"[:200]) from None


def _member(value: Any, path: str) -> Any:  # noqa: ANN401
    """Return the member of a JSON value at a path such as ``meta/next``; None without it."""
    for name in filter(None, path.split("/")):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def is_empty(answer: Answer, rows: str) -> bool:
    """Return whether an answer certainly has no row.

    Of JSON, these are in an array at the path ``rows``, else in the whole or in ``points`` or ``datasets``; other text
    has one in each line after the first.
    """
    text = answer.utf8.strip()
    if text[:1] in {b"{", b"["}:
        found = _rows(answer, rows)
        return isinstance(found, list) and not found
    return not (b"\n" in text or b"\0" in text or text.startswith((b"<", b"PK", b"\x1f\x8b")))


def _rows(answer: Answer, path: str) -> Any:  # noqa: ANN401
    found = _member(_json(answer), path)
    if path or not isinstance(found, dict):
        return [] if found is None else found
    return found.get("points", found.get("datasets"))
