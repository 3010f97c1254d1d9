"""Loads ``diem.toml``: sources, plans, inline limits and prefixes. All faults are reported together, by line."""

import tomllib
from collections.abc import Collection, Iterator, Sequence
from collections.abc import Mapping as Dictionary
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, Field, SerializeAsAny, ValidationError, ValidationInfo
from pydantic_core import PydanticCustomError

from diem.errors import ConfigurationError, did_you_mean
from services.data.access.plans import PlanConfig
from services.data.files.mapping import Mapping
from services.data.files.presets import BadPreset, load_preset, presets, read_preset
from services.data.kinds.prefixes import Prefixes
from services.data.sources import plugins
from services.data.sources.faults import KINDS, ConfigFault, describe, in_order, place_fault, syntax_fault
from services.data.sources.kafka.table import KafkaTable
from services.data.sources.mqtt.table import MqttTable
from services.data.sources.postgres.table import PostgresConfig
from services.data.sources.tables import (
    DataTable,
    DirectoryConfig,
    EndpointTable,
    HttpConfig,
    InlineConfig,
    MappedTable,
    PagesTable,
    PrefixConfig,
    SecretFile,
    SourceTable,
)
from services.data.sources.webhook.table import WebhookConfig
from services.data.toml_table import Table

__all__ = [
    "TABLES",
    "BadConfig",
    "Config",
    "DirectoryConfig",
    "HttpConfig",
    "default_file",
    "load",
]

DEFAULTS: Final = "diem.defaults"
"""Entry point group with the path of a configuration file, used without a file of the operator."""
TABLES: Final[Dictionary[str, type[SourceTable]]] = {
    "directory": DirectoryConfig,
    "http": HttpConfig,
    "kafka": KafkaTable,
    "mqtt": MqttTable,
    "postgres": PostgresConfig,
    "webhook": WebhookConfig,
}
"""The built-in types of sources."""


class BadConfig(ConfigurationError):
    """An unusable configuration file; one line per fault, in file order."""

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
        raise PydanticCustomError("type", "missing field `type`; known are {known}", {"known": _known_types()})
    table = TABLES.get(str(kind)) or _plugged_in(str(kind))
    if table is None:
        hint = did_you_mean(str(kind)[:40], [*TABLES, *plugins.installed()])
        unknown = {"kind": str(kind)[:40], "known": _known_types(), "hint": hint}
        raise PydanticCustomError("type", "unknown type '{kind}'{hint}; known are {known}", unknown)
    if isinstance(raw.get("preset"), str) and issubclass(table, DataTable):
        raw = _completed(raw, Path((info.context or {}).get("directory", "")))
    return table.model_validate(raw, context=info.context)


def _completed(raw: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Return a table with the fields of its preset below its own, also those of its mapping."""
    try:
        preset = load_preset(raw["preset"], directory)
    except BadPreset as error:
        raise PydanticCustomError("preset", "{fault}", {"fault": str(error)}) from None
    return _merged(preset, raw)


def _merged(preset: dict[str, Any], raw: dict[str, Any]) -> dict[str, Any]:
    own = raw.get("mapping", {})
    merged = {**preset.get("mapping", {}), **own} if isinstance(own, dict) else own
    return {**preset, **raw, "mapping": merged}


def _known_types() -> str:
    return ", ".join(map(repr, [*TABLES, *plugins.installed()]))


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
    prefix: list[PrefixConfig] = Field(default=[], max_length=1000)
    system: dict[str, Any] = Field(default={})
    """Options of the commands that start a system, which check them (``deploy.cli.system_table``)."""

    @property
    def prefixes(self) -> Prefixes:
        """The rules of all prefixes; raises ValueError if a schema cannot be used, which :func:`load` reports."""
        return Prefixes.of_all(each.rules for each in self.prefix)


def layout_of(preset: str, endpoint: str, fields: Dictionary[str, str]) -> MappedTable:
    """Return the table of a file that is stored by hand.

    Args:
        preset: its name, or the path of a file.
        endpoint: the file's only endpoint, else the prefix of all.
        fields: of the table, such as the unit.

    Raises:
        ConfigurationError: the preset is unknown, or it and the fields do not fit.
    """
    return _layout({**load_preset(preset, Path()), **fields}, endpoint, preset)


def layout_in(text: str, preset: str, endpoint: str) -> MappedTable:
    """Return the table of a file that comes with a request.

    Args:
        text: as in a preset's file; its fields are above those of the preset.
        preset: its name, never a path; empty: none.
        endpoint: the file's only endpoint, else the prefix of all.

    Raises:
        ConfigurationError: the text is wrong, the preset is unknown, or they do not fit.
    """
    own = read_preset(text)
    if not preset:
        return _layout(own, endpoint, "")
    if preset not in (known := presets()):
        hint = did_you_mean(preset[:40], known) or f"; known are {', '.join(known)}"
        raise ConfigurationError(f"there is no preset {preset[:40]!r}{hint}")
    return _layout(_merged(load_preset(preset, Path()), own), endpoint, preset)


def _layout(raw: dict[str, Any], endpoint: str, label: str) -> MappedTable:
    try:
        several = Mapping.model_validate(raw.setdefault("mapping", {})).is_several
        target = {"prefix" if several else "endpoint": endpoint}
        return MappedTable.model_validate({"type": "file", "name": "file", **target, **raw})
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ", ".join(filter(None, (label, ".".join(map(str, fault["loc"])))))
        raise ConfigurationError(f"{place}: {describe(fault)}" if place else describe(fault)) from None


def default_file() -> Path | None:
    """Return the configuration of a Data Service without a file; None: no installed package has one.

    Raises:
        ConfigurationError: several packages have one, or it cannot be imported.
    """
    points = {point.value: point for point in entry_points(group=DEFAULTS)}
    if len(points) > 1:
        raise ConfigurationError(f"several packages have a default configuration: {', '.join(points)}")
    for value, point in points.items():
        try:
            return Path(point.load())
        except Exception as error:
            raise ConfigurationError(f"the default configuration {value} cannot be used: {error!r}"[:300]) from error
    return None


def load(path: Path | None) -> Config:
    """Read and check a configuration file; None: an empty one.

    Raises:
        BadConfig: the file cannot be read, is not TOML, or a table or field is invalid.
    """
    if path is None:
        return Config()
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors on Windows write a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(path, [getattr(error, "strerror", None) or "not UTF-8 text: save it as UTF-8"]) from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadConfig(path, [str(syntax_fault(text, error))]) from error
    try:
        config = Config.model_validate(document, context={"directory": path.parent})
        faults = []
    except ValidationError as error:
        found = error.errors(include_url=False)
        faults = [_fault(text, document, fault) for fault in found]
        faults += _unchecked(text, document, found)
    faults += _names_given_twice(text, document)
    if not faults:
        faults += _schema_faults(text, document, config)
    if faults:
        raise BadConfig(path, [str(fault) for fault in in_order(faults)])
    return config


def _schema_faults(text: str, document: dict[str, Any], config: Config) -> Iterator[ConfigFault]:
    for index, table in enumerate(config.prefix):
        try:
            _ = table.rules
        except ValueError as error:
            yield place_fault(text, document, ("prefix", index, "json_schema"), str(error))


def _names_given_twice(text: str, document: dict[str, Any]) -> Iterator[ConfigFault]:
    for kind in KINDS:
        names: set[str] = set()
        for index, table in enumerate(_tables(document, kind)):
            field = "name" if kind in {"source", "plan"} else "prefix"
            name = table.get(field, _default_name(kind, table)) if isinstance(table, dict) else None
            if not isinstance(name, str):
                continue  # reported as a fault of its own
            if name in names:
                message = f"another {kind} has the {field} {name!r}"
                yield place_fault(text, document, (kind, index, field), message)
            names.add(name)


def _default_name(kind: str, table: dict[str, Any]) -> object:
    model = _model(kind, table)
    return model.model_fields["name"].default if model is not None and "name" in model.model_fields else None


def _unchecked(text: str, document: dict[str, Any], found: Sequence[Any]) -> Iterator[ConfigFault]:
    """Yield conflicts between fields in tables with faulty fields, which pydantic skips."""
    incomplete = {location[1] for fault in found if (location := fault["loc"])[:1] == ("source",) and location[2:]}
    for index in incomplete:
        table = _tables(document, "source")[index]
        model = _model("source", table) if isinstance(table, dict) else None
        if model is not None and issubclass(model, DataTable):
            for message in model.conflicts(table):
                yield place_fault(text, document, ("source", index), message)


def _fault(text: str, document: dict[str, Any], fault: Any) -> ConfigFault:  # noqa: ANN401  # pydantic's error details
    location = fault["loc"]
    if fault["type"] == "missing":
        return place_fault(text, document, location[:-1], f"missing field `{location[-1]}`")
    if fault["type"] == "extra_forbidden":
        known, noun = _known_names(document, location)
        message = f"unknown {noun} `{location[-1]}`{did_you_mean(str(location[-1]), known)}"
        # The line of the field, named only in the message.
        own, table = (place_fault(text, document, each, message) for each in (location, location[:-1]))
        return table._replace(line=own.line) if len(location) > 1 else ConfigFault(own.line, message)
    if fault["type"] == "list_type" and len(location) == 1:
        return place_fault(text, document, location, f"write [[{location[0]}]], with two brackets")
    return place_fault(text, document, location, describe(fault))


_NESTED: Final[Dictionary[str, type[BaseModel]]] = {
    "endpoints": EndpointTable,
    "headers": SecretFile,
    "mapping": Mapping,
    "pages": PagesTable,
    "query": SecretFile,
    "secret": SecretFile,
}
"""Tables within a ``[[source]]``."""


def _known_names(document: dict[str, Any], location: Sequence[int | str]) -> tuple[Collection[str], str]:
    """Return the candidates for a misspelt field or table name, and which of both it is."""
    match location:
        case [str(name)]:
            return KINDS, "table" if isinstance(document[name], dict | list) else "field"
        case [str(kind), int(index), str()]:
            return _fields(_model(kind, _tables(document, kind)[index])), "field"
        case ["source", int(), str(field), str(), *_] if field in _NESTED:
            return _fields(_NESTED[field]), "field"
        case _:
            return (), "field"


def _fields(model: type[BaseModel] | None) -> Collection[str]:
    return () if model is None else model.model_fields


def _model(kind: str, table: dict[str, Any]) -> type[BaseModel] | None:
    """Return the model of a table; None where its type is unknown."""
    if kind != "source":
        models: dict[str, type[BaseModel]] = {"plan": PlanConfig, "inline": InlineConfig, "prefix": PrefixConfig}
        return models[kind]
    return TABLES.get(str(table.get("type"))) or _plugged_in_or_not(table)


def _plugged_in_or_not(table: dict[str, Any]) -> type[SourceTable] | None:
    try:
        return _plugged_in(str(table.get("type")))
    except PydanticCustomError:  # reported as a fault of its own
        return None


def _tables(document: dict[str, Any], kind: str) -> list[Any]:
    tables = document.get(kind)
    return tables if isinstance(tables, list) else []
