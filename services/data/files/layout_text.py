"""Writes the fields of a source and its mapping as the text of a layout, as presets and requests have it."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

MAX_LINES: Final = 10
"""Lines of a source, if its mapping fits into one of them."""
MAX_COLUMNS: Final = 200
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def layout_text(fields: Mapping[str, Any], keys: Mapping[str, Any]) -> str:
    """Return TOML with ``fields``, and ``keys`` in a table ``[mapping]``; empty without both."""
    lines = [*_lines(fields)]
    if keys:
        lines += ["", "[mapping]", *_lines(keys)] if lines else ["[mapping]", *_lines(keys)]
    return "".join(f"{line}\n" for line in lines)


def source_text(fields: Mapping[str, Any], keys: Mapping[str, Any] | None) -> str:
    """Return a table ``[[source]]`` with a mapping, if ``keys`` are given: in a table of its own, or one long line."""
    lines = ["[[source]]", *_lines(fields)]
    if keys is not None:
        (inline,) = _lines({"mapping": keys})
        own = ["[source.mapping]", *_lines(keys)]
        lines += [inline] if len(lines) + len(own) > MAX_LINES and len(inline) <= MAX_COLUMNS else own
    return "".join(f"{line}\n" for line in lines)


def _lines(table: Mapping[str, Any]) -> Iterable[str]:
    return (f"{_key(key)} = {_value(value)}" for key, value in table.items())


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:  # noqa: ANN401  # of a table
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_lines(value))} }}" if value else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(text: str) -> str:
    # A string of JSON is one of TOML, but for one character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
