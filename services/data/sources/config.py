"""``diem.toml``: which sources there are. Read once, checked completely; a fault names file, table, field and line."""

import re
import tomllib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from diem.process.faults import ConfigurationError
from diem.protocol import endpoints
from services.data.datasets import parse_resolution
from services.data.datasets.form import unit


class BadConfig(ConfigurationError):
    """A configuration file that cannot be used; one line for every fault."""

    def __init__(self, path: Path, faults: Sequence[str]) -> None:
        super().__init__(path, faults)
        self.path = path
        self.faults = tuple(faults)

    def __str__(self) -> str:
        return "\n".join(f"{self.path}: {fault}" for fault in self.faults)


def _endpoint(name: str) -> str:
    try:
        return endpoints.check(name)
    except endpoints.BadName as error:
        raise ValueError(error.reason) from None


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("expected http://host/path or https://host/path")
    return text


Endpoint = Annotated[str, AfterValidator(_endpoint)]
Url = Annotated[str, AfterValidator(_url)]
Unit = Annotated[str, AfterValidator(unit)]
Duration = Annotated[str, AfterValidator(lambda text: parse_resolution(text).text)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class HttpConfig(_Table):
    """A URL that is polled. Exactly one of ``endpoint`` (one dataset) and ``prefix`` (several) says whose it is."""

    type: Literal["http"]
    name: Name
    url: Url
    every: float = Field(default=10.0, ge=0.2, le=86_400, description="Seconds between two polls.")
    timeout: float = Field(default=10.0, gt=0, le=300, description="Seconds that one poll may take in all.")
    max_bytes: int = Field(default=4 * 1024 * 1024, ge=1, le=64 * 1024 * 1024, description="Largest body.")
    format: Literal["auto", "csv", "json"] = Field(default="auto", description="auto: by Content-Type, else by name.")
    endpoint: Endpoint | None = Field(default=None, description="The endpoint of a single dataset.")
    prefix: Endpoint | None = Field(default=None, description="Endpoints below it, named by the data itself.")
    unit: Unit | None = Field(default=None, description="Needed unless the data says it.")
    resolution: Duration | None = Field(default=None, description="Needed unless the data says it.")
    title: str = Field(default="", max_length=200, description="Shown in the catalogue.")

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if (self.endpoint is None) == (self.prefix is None):
            raise ValueError("exactly one of endpoint and prefix is needed")
        return self


class SimulationConfig(_Table):
    """The simulated market (see services.data.sources.market)."""

    type: Literal["simulation"]
    name: Name = "market"
    seed: int = Field(default=1, ge=0, description="Another seed is another weather.")
    time_scale: float = Field(default=1.0, gt=0, le=86_400, description="Simulated seconds per second.")
    start: datetime | None = Field(default=None, description="Simulated time at start; without it, the time it is.")
    pace: float = Field(default=1.0, gt=0, le=1000, description="Multiplies how often each endpoint is updated.")
    zones: list[str] | None = Field(default=None, min_length=1, description="Bidding zones; without it, all of them.")


SourceConfig = Annotated[HttpConfig | SimulationConfig, Field(discriminator="type")]


class Config(_Table):
    """The whole file."""

    source: list[SourceConfig] = Field(default=[], max_length=1000)


def load(path: Path) -> Config:
    """Read and check a configuration file.

    Raises:
        BadConfig: it cannot be read, is not TOML, or says something that is not understood.
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
        config = Config.model_validate(document)
    except ValidationError as error:
        raise BadConfig(path, [_fault(text, document, fault) for fault in error.errors(include_url=False)]) from None
    names = [source.name for source in config.source]
    for index, name in enumerate(names):
        if name in names[:index]:
            where = _where(text, document, ("source", index, "name"))
            raise BadConfig(path, [f"{where}: another source has the name {name!r}"])
    return config


def _fault(text: str, document: dict[str, Any], fault: Any) -> str:  # noqa: ANN401  # pydantic's error details
    message = str(fault["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return f"{_where(text, document, fault['loc'])}: {message[:1].lower()}{message[1:]}"


def _where(text: str, document: dict[str, Any], location: Sequence[int | str]) -> str:
    """``line 7, [[source]] 2 "prices", every``: as much of it as is known."""
    if len(location) < 2 or location[0] != "source" or not isinstance(location[1], int):
        return ", ".join(str(part) for part in location) or "file"
    index = location[1]
    table = document["source"][index]
    # Between the table and its field pydantic names the kind of source that it took the table for.
    fields = [str(part) for part in location[2:] if part not in {"http", "simulation"}]
    line = _line(text, index, fields[0] if fields else "")
    name = f' "{table["name"]}"' if isinstance(table, dict) and isinstance(table.get("name"), str) else ""
    return ", ".join([*([f"line {line}"] if line else []), f"[[source]] {index + 1}{name}", *fields[:1]])


def _line(text: str, index: int, field: str) -> int | None:
    """The line of a field in the ``index``-th [[source]], or of the table; None for tables written in another way."""
    table = -1
    found = None
    for number, line in enumerate(text.splitlines(), start=1):
        if re.match(r"\s*\[\[\s*source\s*\]\]", line):
            table += 1
            if table == index:
                found = number
        elif table == index and field and re.match(rf'\s*"?{re.escape(field)}"?\s*=', line):
            return number
    return found
