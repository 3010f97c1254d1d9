"""Infers the encoding of a text."""

import re
from itertools import pairwise
from typing import Final, NamedTuple

_BOMS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_WESTERN: Final = frozenset(
    "äöüÄÖÜßéèêëàâáãåæçñóòôõøúùûíìîïÅÆØÉÈÀÇÑÓÚÍœŒ€°²³µ£§·\u00d7½¼“”\u2018\u2019\u2013\u2014…±º¹ª«»\u00a0"
)
"""Characters of western texts beside ASCII."""
_LATIN: Final = ("cp1252", "cp1250")
_FOREIGN: Final = ("cp1253", "cp1251")
"""Encodings of Greek and Cyrillic."""


class Encoding(NamedTuple):
    """The encoding of a text; ``key``: what the mapping needs, None for UTF-8 or a byte order mark."""

    key: str | None
    text: str
    reason: str = ""
    is_sure: bool = True


def infer_encoding(body: bytes) -> Encoding:
    """Infer the encoding of a text, of which a part may be cut off at the end."""
    if body.startswith(_BOMS):
        name = "utf-8-sig" if body.startswith(_BOMS[0]) else "utf-16"
        return Encoding(None, body.decode(name, "replace"))
    half = len(body) // 2
    for name, zeros in (("utf-16-le", body[1::2]), ("utf-16-be", body[::2])):
        if half > 8 and zeros[:4096].count(0) > 0.8 * min(half, 4096):
            return Encoding(name, body.decode(name, "replace"), "every other byte is zero")
    try:
        return Encoding(None, body.decode())
    except UnicodeDecodeError as error:
        if error.start > len(body) - 4:
            return Encoding(None, body.decode("utf-8", "ignore"))
    text = body.decode("cp1252", "replace")
    sure = {each for each in text if not each.isascii()} <= _WESTERN and _is_western(text)
    others = _LATIN if _is_western(text) else _FOREIGN
    name = "cp1252" if sure else min(others, key=lambda each: _strangeness(body.decode(each, "replace")))
    text = body.decode(name, "replace")
    shown = next((word for word in text.split() if not word.isascii()), "")[:30]
    return Encoding(name, text, f"not UTF-8; as {name} it has {shown!r}", sure)


def _strangeness(text: str) -> float:
    """Return how unlikely the words of a decoded text are: signs among letters, cases mixed."""
    found = 0.0
    for word in re.findall(r"\S*[^\x00-\x7f]\S*", text)[:200]:
        letters = [each for each in word if not each.isascii()]
        found += sum(not each.isalpha() and each not in _WESTERN for each in letters)
        found += sum(first.islower() and second.isupper() for first, second in pairwise(word))
    return found


def _is_western(text: str) -> bool:
    """Return whether letters beside ASCII stand among ASCII ones, or alone as a sign."""
    words = [word for word in re.findall(r"[^\W\d_]+", text) if not word.isascii()]
    return all(2 * sum(not each.isascii() for each in word) <= len(word) or len(word) == 1 for word in words)
