"""Schema of the ``[[source]]`` tables in diem.toml, one model per type."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import date
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import parse_qs, urlsplit

import orjson
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from diem.protocol import endpoints
from diem.protocol.update import MAX_DATA_BYTES
from services.data.files.mapping import FILE_SUFFIXES, Mapping
from services.data.files.target import FileTarget
from services.data.kinds.kind import MAX_TITLE
from services.data.kinds.prefixes import Fault, Prefix, schema_fault
from services.data.kinds.series import Declared, EndpointDeclaration, LocalClock, parse_resolution, unit
from services.data.kinds.series import zone as time_zone
from services.data.kinds.series.quantities import MAX_AREA, MAX_QUANTITY, check_label, conversion
from services.data.limits import MAX_TTL_S
from services.data.sources.source import Claim
from services.data.sources.templates import REST, check_body, check_template, check_url, expand_rest, offsets
from services.data.toml_table import Table


def _endpoint(name: str) -> str:
    try:
        return endpoints.check_written(name)
    except endpoints.BadName as error:
        raise ValueError(error.reason) from None


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        # An invalid port may be part of a password with a character that needs percent-encoding.
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("expected http://host/path or https://host/path")
    return text


def _matching(pattern: str, expected: str) -> Callable[[str], str]:
    """Return a validator of texts by a pattern, with the expectation in its fault."""
    wanted = re.compile(pattern)

    def check(text: str) -> str:
        if wanted.fullmatch(text) is None:
            raise ValueError(f"expected {expected}")
        return text

    return check


def _beside_the_file(path: str, info: ValidationInfo) -> str:
    directory = (info.context or {}).get("directory", "")
    try:
        own = Path(path).expanduser()
    except RuntimeError:
        raise ValueError("expected a path; the home directory in it is unknown") from None
    return str(Path(directory) / own)


OwnFile = Annotated[str, Field(min_length=1), AfterValidator(_beside_the_file)]
"""A path, relative to diem.toml."""
Endpoint = Annotated[str, AfterValidator(_endpoint)]
Url = Annotated[str, AfterValidator(_url)]
Unit = Annotated[str, AfterValidator(unit)]
Quantity = Annotated[str, AfterValidator(lambda text: check_label(text, MAX_QUANTITY))]
Duration = Annotated[str, AfterValidator(lambda text: parse_resolution(text).text)]
Name = Annotated[
    str,
    AfterValidator(
        _matching(
            "[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
            "at most 64 letters, digits and ._- that begin with a letter or digit",
        )
    ),
]
Area = Annotated[str, AfterValidator(lambda text: check_label(text, MAX_AREA))]
Zone = Annotated[str, AfterValidator(lambda key: time_zone(key).key)]
TimeOfDay = Annotated[str, AfterValidator(_matching("([01][0-9]|2[0-3]):[0-5][0-9]", "times such as 06:00"))]
Title = Annotated[str, Field(max_length=MAX_TITLE)]


class InlineConfig(Table):
    """A table ``[[inline]]``: the longest dataset sent with its update, for endpoints below a prefix."""

    prefix: Endpoint = Field(description="The endpoint of this name, and those below it.")
    max_bytes: int = Field(ge=0, le=MAX_DATA_BYTES, description="In bytes of JSON; 0 = none is sent.")


class PrefixConfig(Table):
    """A table ``[[prefix]]``: rules of the endpoints below a prefix."""

    prefix: Endpoint = Field(description="The endpoint of this name, and those below it.")
    kind: Literal["series", "document", "bytes", "notice", ""] = Field(
        default="",
        description="The only kind of data; series: JSON without a media type of its own is one. Empty: any.",
    )
    json_schema: Annotated[str, AfterValidator(_beside_the_file)] | None = Field(
        default=None, description="File of the JSON Schema of documents; relative to diem.toml."
    )
    ttl: int = Field(default=0, ge=0, le=MAX_TTL_S, description="Seconds until an endpoint expires; 0 = never.")
    url: str = Field(
        default="",
        max_length=500,
        pattern="^(https?://[^/]+)?/",
        description="Where the data of notices is: {endpoint} is the name, {rest} what follows the prefix.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.url and self.kind != "notice":
            raise ValueError("url needs kind = 'notice'")
        if self.json_schema is not None and self.kind != "document":
            raise ValueError("json_schema needs kind = 'document'")
        return self

    @cached_property
    def rules(self) -> Prefix:
        """The rules; raises ValueError if the schema cannot be used."""
        return Prefix(self.prefix, self.kind, self.url, self.ttl * 1000, self._fault())

    def _fault(self) -> Fault | None:
        if self.json_schema is None:
            return None
        try:
            return schema_fault(orjson.loads(Path(self.json_schema).read_bytes()))
        except OSError as error:
            raise ValueError(f"the schema {self.json_schema} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ValueError(f"the schema {self.json_schema}: {error}") from None


class SourceTable(Table):
    """Fields of every source: base of each type's table, including plug-ins'."""

    type: str
    name: Name


class EndpointTable(Table):
    """``[source.endpoints."/name"]``: overriding fields for one of several endpoints."""

    unit: Unit | None = None
    resolution: Duration | None = None
    title: Title | None = None
    area: Area | None = None
    quantity: Quantity | None = None


class DataTable(SourceTable):
    """A source of datasets, for exactly one of ``endpoint`` (one dataset) and ``prefix`` (several)."""

    endpoint: Endpoint | None = Field(default=None, description="The endpoint of a single dataset.")
    prefix: Endpoint | None = Field(default=None, description="Endpoints below it.")
    unit: Unit | None = Field(default=None, description="Needed unless the data says it.")
    resolution: Duration | None = Field(default=None, description="Needed unless the data says it.")
    title: Title = Field(default="", description="Shown in the catalogue.")
    area: Area = Field(default="", description="Where it is measured, such as a bidding zone.")
    quantity: Quantity = Field(
        default="", description="What is measured; a quantity of an installed package is served in its canonical unit."
    )
    zone: Zone = Field(default="UTC", description="Of times without an offset, as in Europe/Athens.")
    preset: str | None = Field(
        default=None, description="Fields of a publisher's feed, below those given here: its name, or a file NAME.toml."
    )
    mapping: Mapping | None = Field(default=None, description="Where the data of other files is than DIEM's own.")
    endpoints: dict[Endpoint, EndpointTable] = Field(
        default={}, max_length=10_000, description="What is different for one of several endpoints."
    )

    @field_validator("quantity")
    @classmethod
    def _is_measured_in_the_unit(cls, name: str, info: ValidationInfo) -> str:
        unit = info.data.get("unit")
        if unit is not None:
            conversion(unit, name)
        return name

    @classmethod
    def conflicts(cls, given: Collection[str]) -> Iterator[str]:
        """Yield what is wrong with the fields that are ``given``, whatever their values."""
        if ("endpoint" in given) == ("prefix" in given):
            yield "exactly one of endpoint and prefix is needed"

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        given = [name for name in self.model_fields_set if getattr(self, name) is not None]
        if fault := "; ".join(self.conflicts(given)):
            raise ValueError(fault)
        if self.mapping is not None and self.endpoint is not None and self.mapping.is_several:
            raise ValueError("mapping: its rows or columns name several endpoints: use prefix in place of endpoint")
        for name in self.endpoints:
            if self.prefix is None or not name.startswith(self.prefix + "/"):
                raise ValueError(f"endpoints: {name} is not below the prefix")
            own = self.describe(name)
            if own.unit is not None:
                try:
                    conversion(own.unit, own.quantity)
                except ValueError as error:
                    raise ValueError(f"endpoints: {name}: {error}") from None
        return self

    @property
    def claims(self) -> Sequence[Claim]:
        """The configured endpoint, or everything below the prefix."""
        if self.endpoint is not None:
            return [Claim(self.endpoint)]
        return [Claim(str(self.prefix), below=True)]

    def describe(self, endpoint: str) -> EndpointDeclaration:
        """Return the declaration of an endpoint: its own fields over the common ones."""
        own = self.endpoints.get(endpoint)
        return self._common if own is None else self._common._replace(**own.model_dump(exclude_none=True))

    def declared(self, endpoint: str | None) -> Declared:
        """Return the declarations for a body; ``endpoint`` is None when the body names its endpoints."""
        clock = LocalClock(self.zone)
        if endpoint is not None:
            return Declared(endpoint, self.describe(endpoint), clock=clock)
        return Declared(None, self._common, {name: self.describe(name) for name in self.endpoints}, clock)

    @property
    def target(self) -> FileTarget:
        """The endpoints of a file with a mapping, named after the file unless rows or columns have names."""
        several = self.mapping is not None and self.mapping.is_several
        return FileTarget(self.declared(self.endpoint), self.prefix or "", self._name(several=several))

    def _name(self, *, several: bool) -> str:
        """Return the default template of names."""
        return "{column}" if several else "{file}"

    @property
    def _common(self) -> EndpointDeclaration:
        return EndpointDeclaration(self.unit, self.resolution, self.title, self.area, self.quantity)


class SecretFile(Table):
    """The value of a header field or parameter in a file, which is read at each request."""

    file: OwnFile
    prefix: str = Field(default="", max_length=100)


def _value(raw: object, info: ValidationInfo) -> object:
    if isinstance(raw, dict):
        return SecretFile.model_validate(raw, context=info.context)
    if isinstance(raw, str):
        return raw
    if type(raw) is int:
        return str(raw)
    raise ValueError('expected text in quotes, a whole number, or { file = "..." }')


Value = Annotated[str | SecretFile, BeforeValidator(_value)]
_OF_THE_CLIENT: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect"}
    | {"accept-encoding", "range", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range"}
    | {"proxy-authorization", "proxy-connection"}
)
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)


def header_name(name: str) -> str:
    """Return the name of a header field; raises ValueError for any other text."""
    if _HEADER.fullmatch(name) is None:
        raise ValueError(f"{name[:40]!r} is not the name of a header field")
    return name


def _headers(headers: dict[str, str | SecretFile]) -> dict[str, str | SecretFile]:
    for name, value in headers.items():
        if header_name(name).lower() in _OF_THE_CLIENT:
            raise ValueError(f"the HTTP client sets {name} itself")
        if name.lower() == "content-type":
            raise ValueError(f"use content_type, beside body, for {name}")
        if isinstance(value, str) and re.fullmatch(r"[\t -~]*", value) is None:
            raise ValueError(f"a header field has ASCII characters alone, unlike {name}")
    if len({name.lower() for name in headers}) < len(headers):
        raise ValueError("the same field is there twice")
    return headers


def _query(query: dict[str, str | SecretFile]) -> dict[str, str | SecretFile]:
    for name, value in query.items():
        if isinstance(value, str):
            try:
                check_template(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    return query


class PagesTable(Table):
    """``pages``: where the next page of an answer is found."""

    next: str = Field(default="", max_length=200)
    link: bool = False
    parameter: str = Field(default="", max_length=100)
    first: int = Field(default=1, ge=0, le=1_000_000)
    step: int = Field(default=1, ge=1, le=1_000_000)
    rows: str = Field(default="", max_length=200)
    most: int = Field(default=100, ge=1, le=10_000)

    @property
    def is_numbered(self) -> bool:
        """True if the parameter is the number of a page or row."""
        return bool(self.parameter) and not self.next

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.link and (self.next or self.parameter):
            raise ValueError("link excludes next and parameter")
        if not (self.link or self.next or self.parameter):
            raise ValueError("one of next, link and parameter is needed")
        if not self.is_numbered and self.model_fields_set & {"first", "step", "rows"}:
            raise ValueError("first, step and rows belong to a parameter alone")
        return self


def _date(raw: object) -> object:
    try:
        return raw if type(raw) is date else date.fromisoformat(str(raw))
    except ValueError:
        raise ValueError("expected a date such as 2026-01-31") from None


_HOST: Final = r"([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?"
Host = Annotated[str, AfterValidator(_matching(_HOST, "a host, such as cdn.example"))]


class MappedTable(DataTable):
    """A file that is stored by hand."""

    mapping: Mapping


class HttpConfig(DataTable):
    """A polled URL; with ``prefix``, the data names the endpoints, or with ``{rest}`` in the URL their watchers."""

    type: Literal["http"]
    url: Annotated[Url, AfterValidator(check_url)] = Field(
        description="With {rest}: of each endpoint below the prefix, polled while it is watched."
    )
    kind: Literal["series", "document"] = Field(
        default="series", description="document: the JSON of the answer as it is, of one endpoint."
    )
    headers: Annotated[dict[str, Value], AfterValidator(_headers)] = Field(
        default={}, max_length=32, description="Header fields of every request."
    )
    query: Annotated[dict[str, Value], AfterValidator(_query)] = Field(
        default={}, max_length=64, description="Parameters added to the URL."
    )
    method: Literal["GET", "POST"] = Field(default="GET", description="POST: the query is the body.")
    body: Annotated[str, AfterValidator(check_body)] | None = Field(
        default=None, max_length=65_536, description="Of a POST."
    )
    content_type: str = Field(default="application/json", pattern="^[ -~]{1,200}$", description="Of the body.")
    redirects: list[Host] = Field(
        default=[], max_length=16, description="Other hosts to which redirects may lead, without header fields."
    )
    days: int | None = Field(default=None, ge=1, le=366, description="The last days, each with a request of its own.")
    since: Annotated[date, BeforeValidator(_date)] | None = Field(
        default=None, description="Day from which all days are requested, once."
    )
    pages: PagesTable | None = Field(default=None, description="Where the next page of an answer is found.")
    per_minute: float | None = Field(
        default=None, gt=0, le=60_000, description="Requests to the host; default 120, or twice as many as polls."
    )
    every: float = Field(default=10.0, ge=0.2, le=86_400, description="Seconds between two polls.")
    at: list[TimeOfDay] = Field(
        default=[], max_length=96, description="Instead: times of day (HH:MM in the zone), and at start."
    )
    jitter: float = Field(default=0.0, ge=0, le=3600, description="Random seconds, at most, that a poll is put off by.")
    timeout: float = Field(default=10.0, gt=0, le=300, description="Seconds that one poll may take in all.")
    max_bytes: int = Field(default=4 * 1024 * 1024, ge=1, le=64 * 1024 * 1024, description="Largest body.")
    max_endpoints: int = Field(
        default=10_000,
        ge=1,
        le=50_000,
        description="Most endpoints that the data may name, or watchers ({rest}).",
    )
    concurrent: int = Field(default=8, ge=1, le=64, description="Requests at a time, with {rest} in url.")
    format: Literal["auto", "csv", "json"] = Field(default="auto", description="auto: by Content-Type, else by name.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if fault := next(chain(self._watched_faults(), self._document_faults(), self._faults()), ""):
            raise ValueError(fault)
        return self

    def _faults(self) -> Iterator[str]:
        parts = urlsplit(self.url)
        if "{" in parts.netloc:
            yield "url: dates and {rest} may be in its path and query, not in its host"
        if (self.body is not None) != (self.method == "POST"):
            yield "body and method = 'POST' belong together"
        if parts.username is not None and any(name.lower() == "authorization" for name in self.headers):
            yield "headers: Authorization is given by the user name in url, too"
        given = parse_qs(parts.query, keep_blank_values=True).keys()
        if twice := self.query.keys() & given:
            yield f"query: {min(twice)} is in url, too"
        if self.pages is not None and self.pages.parameter in (self.query.keys() | given):
            yield f"pages: its parameter {self.pages.parameter} is in url or query, too"
        if self.mapping is not None and self.format != "auto":
            yield "format: of a file with a mapping, it is a key of that"
        if self.since is not None and self.mapping is not None and self.mapping.kind == "document":
            yield "since needs series: documents of earlier days would replace those of later ones"
        if self.is_windowed and not self.day_offsets:
            yield "days and since need a date in url, query or body, such as {date:%Y-%m-%d}"

    def _watched_faults(self) -> Iterator[str]:
        if not self.is_watched:
            if "concurrent" in self.model_fields_set:
                yield "concurrent needs {rest} in url"
            return
        if self.prefix is None:
            yield "url: {rest} stands for endpoints below a prefix: use prefix in place of endpoint"
        if self.at or self.is_windowed:
            yield "url: {rest} excludes at, days and since: an endpoint is polled every so often while it is watched"
        if self.mapping is not None and self.mapping.is_several:
            yield "mapping: its rows or columns name several endpoints, and {rest} in url stands for one"

    def _document_faults(self) -> Iterator[str]:
        if self.kind != "document":
            return
        if self.prefix is not None and not self.is_watched:
            yield "kind = 'document' is of one endpoint: use endpoint instead of prefix, or a mapping, or {rest} in url"
        of_series = {"unit", "resolution", "quantity", "area", "mapping", "pages", "days", "since", "format"}
        if wrong := self.model_fields_set & of_series:
            yield f"{min(wrong)} does not go with kind = 'document', which is the JSON of an answer as it is"

    @property
    def is_watched(self) -> bool:
        """True if each endpoint has a URL of its own, which is polled while the endpoint is watched."""
        return REST in self.url

    def of_endpoint(self, endpoint: str) -> Self:
        """Return the table of one endpoint below the prefix of a URL with ``{rest}``."""
        url = expand_rest(self.url, endpoint, str(self.prefix))
        return self.model_copy(update={"url": url, "endpoint": endpoint, "prefix": None})

    @property
    def is_windowed(self) -> bool:
        """True if an answer is a part of what an endpoint has."""
        return self.days is not None or self.since is not None

    @property
    def rows(self) -> str:
        """Path of the array of rows in JSON: that of ``pages``, else that of the mapping; empty if unknown."""
        if self.pages is not None and self.pages.rows:
            return self.pages.rows
        return "" if self.mapping is None or "*" in self.mapping.rows else self.mapping.rows

    @property
    def day_offsets(self) -> list[int]:
        """The distance in days of every date in the request."""
        texts = [self.url, self.body or "", *(value for value in self.query.values() if isinstance(value, str))]
        return [days for text in texts for days in offsets(text)]

    @field_validator("at")
    @classmethod
    def _instead_of_every(cls, times: list[str], info: ValidationInfo) -> list[str]:
        # Runs only if ``at`` is given: any other ``every`` than the default was then given, too.
        if times and info.data.get("every") != cls.model_fields["every"].default:
            raise ValueError("every and at exclude each other")
        return times


SUFFIXES: Final = (".csv", ".parquet")
"""Files that are read without a mapping."""


class DirectoryConfig(DataTable):
    """A directory of files: ``file`` is ``endpoint``, or each file is ``prefix``/stem of its name."""

    type: Literal["directory"]
    path: Annotated[str, AfterValidator(_beside_the_file)] = Field(
        min_length=1, description="The directory; relative to that of diem.toml."
    )
    file: str | None = Field(default=None, min_length=1, max_length=255, description="The file that is the endpoint.")
    every: float = Field(default=1.0, ge=0.05, le=86_400, description="Seconds between two looks; two see a change.")
    max_bytes: int = Field(default=4 * 1024 * 1024, ge=1, le=64 * 1024 * 1024, description="Largest file.")
    max_files: int = Field(default=1000, ge=1, le=10_000, description="Most files; the first by name are taken.")

    @field_validator("file")
    @classmethod
    def _is_a_name(cls, name: str | None, info: ValidationInfo) -> str | None:
        suffixes = SUFFIXES if info.data.get("mapping") is None else FILE_SUFFIXES
        if name is not None and ("/" in name or not name.lower().endswith(suffixes)):
            more = "" if suffixes is FILE_SUFFIXES else "; a mapping reads others"
            raise ValueError(f"expected the name of a file in the directory, {' or '.join(suffixes)}{more}")
        return name

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Ends of the names of files that are read, in lower case."""
        return SUFFIXES if self.mapping is None else FILE_SUFFIXES

    def _name(self, *, several: bool) -> str:
        return "{file}/{column}" if several else "{file}"

    @classmethod
    def conflicts(cls, given: Collection[str]) -> Iterator[str]:
        """Yield what is wrong with the fields that are ``given``, whatever their values."""
        yield from super().conflicts(given)
        if "endpoint" in given and "file" not in given:
            yield "endpoint needs file"
