"""Load ``diem.toml``: sources and plans. All faults are reported, each with file, table, field and line."""

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, Field, SerializeAsAny, ValidationError, ValidationInfo
from pydantic_core import PydanticCustomError

from diem.errors import ConfigurationError, did_you_mean
from services.data.access.plans import PlanConfig
from services.data.sources import plugins
from services.data.sources.tables import (
    DirectoryConfig,
    EndpointTable,
    HttpConfig,
    InlineConfig,
    SimulationConfig,
    SourceTable,
    Table,
)

__all__ = ["TABLES", "BadConfig", "Config", "DirectoryConfig", "HttpConfig", "SimulationConfig", "load"]

TABLES: Final[Mapping[str, type[SourceTable]]] = {
    "directory": DirectoryConfig,
    "http": HttpConfig,
    "simulation": SimulationConfig,
}
"""The built-in types of sources."""
_KINDS: Final = ("source", "plan", "inline")
"""The tables of the file."""


class BadConfig(ConfigurationError):
    """A configuration file that cannot be used; one line per fault."""

    def __init__(self, path: Path, faults: Sequence[str]) -> None:
        super().__init__(path, faults)
        self.path = path
        self.faults = tuple(faults)

    def __str__(self) -> str:
        return "\n".join(f"{self.path}: {fault}" for fault in self.faults)


def _source(raw: object, info: ValidationInfo) -> object:
    """Validate a ``[[source]]`` table by the model of its type."""
    if not isinstance(raw, dict):
        return raw
    kind = raw.get("type")
    if kind is None:
        raise PydanticCustomError("type", "field required: type")
    table = TABLES.get(str(kind)) or _plugged_in(str(kind))
    if table is None:
        types = [*TABLES, *plugins.installed()]
        known = {
            "kind": str(kind)[:40],
            "known": ", ".join(map(repr, types)),
            "hint": did_you_mean(str(kind)[:40], types),
        }
        raise PydanticCustomError("type", "input tag '{kind}' is no type of source; known are {known}{hint}", known)
    return table.model_validate(raw, context=info.context)


def _plugged_in(kind: str) -> type[SourceTable] | None:
    try:
        found = plugins.find(kind)
    except plugins.BadPlugin as error:
        raise PydanticCustomError("type", "{fault}", {"fault": str(error)}) from None
    return None if found is None else found.Config


SourceConfig = Annotated[SerializeAsAny[SourceTable], BeforeValidator(_source)]


class Config(Table):
    """The whole file."""

    source: list[SourceConfig] = Field(default=[], max_length=1000)
    plan: list[PlanConfig] = Field(default=[], max_length=100)
    inline: list[InlineConfig] = Field(default=[], max_length=1000)


def load(path: Path) -> Config:
    """Read and check a configuration file.

    Raises:
        BadConfig: the file cannot be read, is not TOML, or a table or field is invalid.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(path, [getattr(error, "strerror", None) or "not UTF-8 text"]) from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadConfig(path, [f"not TOML: {error}"]) from error
    try:
        config = Config.model_validate(document, context={"directory": path.parent})
        faults = []
    except ValidationError as error:
        faults = [_fault(text, document, fault) for fault in error.errors(include_url=False)]
    faults += _names_given_twice(text, document)
    if faults:
        raise BadConfig(path, faults)
    return config


def _names_given_twice(text: str, document: dict[str, Any]) -> list[str]:
    faults = []
    for kind in _KINDS:
        names: set[str] = set()
        for index, table in enumerate(_tables(document, kind)):
            field = "prefix" if kind == "inline" else "name"
            name = table.get(field, _default_name(kind, table)) if isinstance(table, dict) else None
            if not isinstance(name, str):
                continue  # reported as a fault of its own
            if name in names:
                where = _where(text, document, (kind, index, field))
                faults.append(f"{where}: another {kind} has the {field} {name!r}")
            names.add(name)
    return faults


def _default_name(kind: str, table: dict[str, Any]) -> object:
    model = _model(kind, table)
    return model.model_fields["name"].default if model is not None and "name" in model.model_fields else None


def _fault(text: str, document: dict[str, Any], fault: Any) -> str:  # noqa: ANN401  # pydantic's error details
    location = fault["loc"]
    if fault["type"] == "extra_forbidden":
        message = _no_such_field(document, location)
    else:
        message = str(fault["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return f"{_where(text, document, location)}: {message[:1].lower()}{message[1:]}"


def _no_such_field(document: dict[str, Any], location: Sequence[int | str]) -> str:
    """Describe an unknown field or table, with the known ones that it may be a misspelling of."""
    match location:
        case [str(kind)]:
            return f"no such table{did_you_mean(kind, _KINDS)}"
        case [str(kind), int(index), str(field)]:
            known = _fields(_model(kind, _tables(document, kind)[index]))
        case ["source", int(), "endpoints", str(), str(field)]:
            known = _fields(EndpointTable)
        case _:
            field, known = str(location[-1]), ()
    return f"no such field{did_you_mean(field, known)}"


def _fields(model: type[BaseModel] | None) -> Collection[str]:
    return () if model is None else model.model_fields


def _model(kind: str, table: dict[str, Any]) -> type[BaseModel] | None:
    """Return the model of a table; None where its type is unknown."""
    if kind != "source":
        return PlanConfig if kind == "plan" else InlineConfig
    return TABLES.get(str(table.get("type"))) or _plugged_in_or_not(table)


def _plugged_in_or_not(table: dict[str, Any]) -> type[SourceTable] | None:
    try:
        return _plugged_in(str(table.get("type")))
    except PydanticCustomError:  # reported as a fault of its own
        return None


def _tables(document: dict[str, Any], kind: str) -> list[Any]:
    tables = document.get(kind)
    return tables if isinstance(tables, list) else []


def _where(text: str, document: dict[str, Any], location: Sequence[int | str]) -> str:
    """Return the place of a fault, as in ``line 7, [[source]] 2 "prices", every``, as far as it is known."""
    if len(location) < 2 or location[0] not in _KINDS or not isinstance(location[1], int):
        line = _line_of_table(text, str(location[0])) if location else None
        return ", ".join([*([f"line {line}"] if line else []), *map(str, location)]) or "file"
    kind, index = str(location[0]), location[1]
    table = document[kind][index]
    fields = [part for part in location[2:] if isinstance(part, str) and part != "[key]"]
    if fields[:1] != ["endpoints"]:
        fields = fields[:1]
    line = _line(text, kind, index, fields)
    name = f' "{table["name"]}"' if isinstance(table, dict) and isinstance(table.get("name"), str) else ""
    shown = [".".join(fields)] if fields else []
    return ", ".join([*([f"line {line}"] if line else []), f"[[{kind}]] {index + 1}{name}", *shown])


def _line_of_table(text: str, name: str) -> int | None:
    """Return the number of the first line with a top-level table or key."""
    begins = re.compile(rf'\s*(\[\[?\s*)?"?{re.escape(name)}"?\s*(\]|=|\.)')
    return next((number for number, line in enumerate(text.splitlines(), start=1) if begins.match(line)), None)


def _line(text: str, kind: str, index: int, fields: Sequence[str]) -> int | None:
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
