"""Describes the faults of ``diem.toml``: line, table, field and expectation, in file order.

``config`` finds them; this module renders them.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

KINDS: Final = ("source", "plan", "inline", "prefix")
"""The tables of the file."""
Location = Sequence[int | str]
"""Path of a value in the document, such as ``("source", 0, "every")``."""


class ConfigFault(NamedTuple):
    """One fault; ``line`` is None if unknown, as for the file itself."""

    line: int | None
    text: str

    def __str__(self) -> str:
        """Return the fault in one line, with the number of its line."""
        return self.text if self.line is None else f"line {self.line}, {self.text}"


def in_order(faults: Iterable[ConfigFault]) -> list[ConfigFault]:
    """Sort faults by line, those without one last."""
    return sorted(faults, key=lambda fault: (fault.line is None, fault.line or 0))


_SYNTAX_PLACE: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


def syntax_fault(text: str, error: tomllib.TOMLDecodeError) -> ConfigFault:
    """Return the fault of a text with invalid TOML."""
    found = _SYNTAX_PLACE.search(str(error))
    reason = str(error)[: found.start()] if found else str(error)
    at_end = found is not None and found[1] is None
    line = int(found[1]) if found and found[1] else max(1, len(text.splitlines()))
    return ConfigFault(line, f"not TOML: {reason[:1].lower()}{reason[1:]}{' before the end of the file' * at_end}")


def place_fault(text: str, document: Mapping[str, Any], location: Location, message: str) -> ConfigFault:
    """Return the fault of the value at a location, as far as that is known.

    Its text is as in ``[[source]] 2 "prices", every: must be at least 0.2``.
    """
    if len(location) < 2 or location[0] not in KINDS or not isinstance(location[1], int):
        line = _line_of_key(text, str(location[0])) if location else None
        return ConfigFault(line, f"{', '.join(map(str, location)) or 'file'}: {message}")
    kind, index = str(location[0]), location[1]
    table = document[kind][index]
    fields = [part for part in location[2:] if isinstance(part, str) and part != "[key]"]
    if fields[:1] not in (["endpoints"], ["mapping"]):
        fields = fields[:1]
    name = f' "{table["name"]}"' if isinstance(table, dict) and isinstance(table.get("name"), str) else ""
    shown = [".".join(fields)] if fields else []
    where = ", ".join([f"[[{kind}]] {index + 1}{name}", *shown])
    return ConfigFault(_line_of_field(text, kind, index, fields), f"{where}: {message}")


# Messages


def describe(fault: Mapping[str, Any]) -> str:
    """Translate a fault of pydantic's for an editor of the file."""
    context = fault.get("ctx", {})
    if (words := _MESSAGES.get(str(fault["type"]))) is not None:
        return words(context)
    message = str(fault["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return message[:1].lower() + message[1:]


def _plain(text: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda _context: text


def _number(text: str, name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda context: f"{text} {context[name]:,.12g}"


def _shortest(noun: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda context: (
        "must not be empty" if (least := context["min_length"]) == 1 else f"too short: {least} {noun}"
    )


def _longest(noun: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda context: f"has more than {context['max_length']:,} {noun}"


_WHOLE: Final = _plain("expected a whole number")
_TEXT: Final = _plain("expected text in quotes")
_TABLE: Final = _plain("expected a table")
_TIME: Final = _plain("expected a time such as 2026-06-01T00:00:00Z")
_MESSAGES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "int_type": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _plain("expected a number"),
    "finite_number": _plain("expected a finite number"),
    "string_type": _TEXT,
    "bool_type": _plain("expected true or false"),
    "list_type": _plain("expected a list in brackets"),
    "dict_type": _TABLE,
    "model_type": _TABLE,
    "datetime_type": _TIME,
    "datetime_parsing": _TIME,
    "literal_error": lambda context: f"expected {context['expected']}",
    "greater_than": _number("must be greater than", "gt"),
    "greater_than_equal": _number("must be at least", "ge"),
    "less_than": _number("must be less than", "lt"),
    "less_than_equal": _number("must be at most", "le"),
    "string_too_short": _shortest("characters at least"),
    "string_too_long": _longest("characters"),
    "too_short": _shortest("entries at least"),
    "too_long": _longest("entries"),
}
"""Messages by type of pydantic's errors; others, such as validators', are shown unchanged."""


# Lines


def _line_of_key(text: str, name: str) -> int | None:
    """Return the number of the first line with a top-level table or key."""
    begins = re.compile(rf'\s*(\[\[?\s*)?"?{re.escape(name)}"?\s*(\]|=|\.)')
    return next((number for number, line in enumerate(text.splitlines(), start=1) if begins.match(line)), None)


def _line_of_field(text: str, kind: str, index: int, fields: Sequence[str]) -> int | None:
    """Return the line of a field of the ``index``-th table of a kind, else of the table; None for inline tables."""
    table, inside = -1, False
    path: list[str] = []
    found = None
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\[\s*(\w+)\s*\]\]", line):
            inside = header[1] == kind
            table += inside
            path = []
            if inside and table == index:
                found = number
        elif inside and table == index:
            if re.match(r"\s*\[", line):
                path = _table_path(line)[1:]
                found = number if path and path == list(fields[: len(path)]) else found
            elif path == list(fields[: len(path)]) and len(path) < len(fields) and _is_key(line, fields[len(path)]):
                return number
    return found


def _is_key(line: str, field: str) -> bool:
    return re.match(rf'\s*"?{re.escape(field)}"?\s*=', line) is not None


def _table_path(line: str) -> list[str]:
    """Return the keys of a header such as ``[source.endpoints."/x"]``; empty for any other line."""
    path: list[str] = []
    try:
        inner = tomllib.loads(line)
    except tomllib.TOMLDecodeError:  # a line of a multi-line string or array
        return path
    while inner:
        key, inner = next(iter(inner.items()))
        path.append(key)
    return path
