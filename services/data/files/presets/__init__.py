"""Presets of publishers' feeds: ``NAME.toml`` beside this module, to be used by name, or copied and changed.

A preset has fields of a ``[[source]]`` table and, in ``[mapping]``, those of its ``[source.mapping]``; comments show
the first rows of a file in its layout.
"""

import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, ValidationError

from diem.errors import ConfigurationError, did_you_mean
from services.data.files.mapping import Mapping
from services.data.kinds.series import parse_resolution
from services.data.kinds.series import unit as canonical_unit
from services.data.kinds.series import zone as time_zone
from services.data.sources.faults import describe, syntax_fault
from services.data.toml_table import Table

_SUFFIX: Final = ".toml"


class BadPreset(ConfigurationError):
    """An unknown or unusable preset; one line, with that of the file."""


class _Preset(Table):
    """The fields of a preset."""

    unit: Annotated[str, AfterValidator(canonical_unit)] | None = None
    resolution: Annotated[str, AfterValidator(parse_resolution)] | None = None
    zone: Annotated[str, AfterValidator(time_zone)] | None = None
    title: str | None = None
    area: str | None = None
    quantity: str | None = None
    mapping: Mapping = Field(default_factory=Mapping)


def presets() -> list[str]:
    """Return the names of the presets, sorted."""
    return sorted(each.name.removesuffix(_SUFFIX) for each in files(__name__).iterdir() if each.name.endswith(_SUFFIX))


def load_preset(name_or_path: str, directory: Path) -> dict[str, Any]:
    """Return the fields of a preset for a source table, with a table ``mapping``.

    Args:
        name_or_path: a name; or, ending in ``.toml``, the path of a file of the user's own.
        directory: of relative paths.

    Raises:
        BadPreset: unknown, or not valid.
    """
    if name_or_path.endswith(_SUFFIX):
        path = directory / Path(name_or_path).expanduser()
    elif name_or_path in (known := presets()):
        path = Path(str(files(__name__) / f"{name_or_path}{_SUFFIX}"))
    else:
        hint = did_you_mean(name_or_path, known) or f"; known are {', '.join(known)}, or a file of your own: NAME.toml"
        raise BadPreset(f"there is no preset {name_or_path[:40]!r}{hint}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise BadPreset(f"the preset {path} cannot be read: {reason}") from None
    try:
        return read_preset(text)
    except BadPreset as error:
        raise BadPreset(f"{path}: {error}") from None


def read_preset(text: str) -> dict[str, Any]:
    """Return the fields in the text of a preset. Raises BadPreset, with the line."""
    try:
        fields = tomllib.loads(text)
        _Preset.model_validate(fields)
    except tomllib.TOMLDecodeError as error:
        raise BadPreset(str(syntax_fault(text, error))) from None
    except ValidationError as error:
        raise BadPreset(_fault(text, fields, error)) from None
    except (ValueError, RecursionError):
        raise BadPreset("not TOML: a number is too long, or a value is nested too deeply") from None
    return fields


def _fault(text: str, fields: Any, error: ValidationError) -> str:  # noqa: ANN401  # a document of TOML
    """Return the first fault, with its line and key."""
    found = error.errors(include_url=False)[0]
    location: list[str] = []
    for part in map(str, found["loc"]):
        if not isinstance(fields, dict) or part not in fields:
            break  # an index, or pydantic's name of a branch of a union
        location.append(part)
        fields = fields[part]
    where = f"{_line(text, location)}{'.'.join(location)}"
    if location == ["source"]:
        return (
            "leave [[source]] out: a preset has its fields alone, as `diem sources suggest --layout FILE.toml` writes"
        )
    if found["type"] == "extra_forbidden":
        known = Mapping.model_fields if location[0] == "mapping" else _Preset.model_fields
        return f"{where}: unknown field{did_you_mean(location[-1], known)}"
    return f"{where}: {describe(found)}"


def _line(text: str, location: list[str]) -> str:
    """Return the line of the last part of a location that has one, such as ``line 7, ``."""
    lines = text.splitlines()
    table = next((index for index, line in enumerate(lines) if re.match(r"\s*\[\s*mapping\b", line)), len(lines))
    inside = range(table, len(lines)) if location[0] == "mapping" else range(table)
    for key in reversed(location):
        begins = re.compile(rf"\s*(\[\s*(mapping\.)?)?[\"']?{re.escape(key)}[\"']?\s*[=.\]]")
        for index in inside:
            if begins.match(lines[index]):
                return f"line {index + 1}, "
    return ""
