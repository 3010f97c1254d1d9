"""Converts small files by mappings in TOML, and lists the points."""

import tomllib
from typing import NamedTuple

import orjson

from services.data.files.convert import convert
from services.data.files.grid import InputFile
from services.data.files.mapping import Mapping
from services.data.files.target import FileTarget
from services.data.kinds import Representation
from services.data.kinds.series import Declared, EndpointDeclaration, LocalClock


class Declaration(NamedTuple):
    """The fields of a source beside its mapping."""

    endpoint: str | None = None
    prefix: str = "/p"
    zone: str = "UTC"
    unit: str | None = "MW"
    resolution: str | None = "PT1H"
    name: str = ""


ONE = Declaration("/x")


def converted(
    content: str | bytes, mapping: str = "", declaration: Declaration = ONE, name: str = "f.csv"
) -> list[Representation]:
    """Convert a file, for the endpoint or below the prefix."""
    body = content.encode() if isinstance(content, str) else content
    common = EndpointDeclaration(declaration.unit, declaration.resolution)
    declared = Declared(declaration.endpoint, common, {}, LocalClock(declaration.zone))
    prefix = "" if declaration.endpoint else declaration.prefix
    target = FileTarget(declared, prefix, declaration.name)
    return convert(InputFile(name, body), Mapping.model_validate(tomllib.loads(mapping)), target)


def points(made: Representation) -> list[tuple[str, float | None]]:
    """Return the points of a series as time, to the minute, and value."""
    return [(point["time"][:16], point["value"]) for point in orjson.loads(made.content)["points"]]
