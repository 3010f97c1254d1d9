"""The keys of ``[[source]]`` that all sources of records share."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from diem.protocol import endpoints
from services.data.files.mapping import Column
from services.data.files.time_formats import check_format
from services.data.kinds import media_type
from services.data.limits import MAX_TTL_S
from services.data.sources.source import Claim
from services.data.sources.tables import Duration, SourceTable, Title, Unit, Zone

FIELD: Final = re.compile(r"\{([^{}]+)\}")


def _template(text: str) -> str:
    first = text.partition("{")[0]
    fixed = first if first == text else first.rpartition("/")[0]
    if not endpoints.is_prefix(fixed):
        raise ValueError("expected a fixed first segment, as in /orders/{id}")
    if not endpoints.is_prefix(FIELD.sub("x", text)):
        raise ValueError("expected segments of letters, digits and names in braces, as in /orders/{id}")
    return text


def _media_type(text: str) -> str:
    if not (made := media_type(text)):
        raise ValueError("expected a media type, such as text/plain")
    return made


class RecordTable(SourceTable):
    """A source of records, each of which is a change of one endpoint."""

    origin: ClassVar[Sequence[str]] = ()
    """Names of a record's origin that templates may have, such as ``topic``."""

    endpoint: Annotated[str, Field(max_length=256), AfterValidator(_template)] = Field(
        description="Name of a record's endpoint: {id} is a member of its value, {key} its key, {key/id} a member of "
        "that, {header/NAME} a header field."
    )
    kind: Literal["document", "series", "bytes", "notice"] = Field(
        default="document", description="document: the value; series: a point of it; notice: only that it has changed."
    )
    value: Column | None = Field(
        default=None, description="Path of the document, or of a point's value, in a record. Default: all of it."
    )
    where: dict[Column, str | list[str]] = Field(
        default={}, max_length=16, description="Only records with one of these texts at these paths."
    )
    gone: dict[Column, str | list[str]] = Field(
        default={}, max_length=16, description="Records with one of these texts at these paths end their endpoint."
    )
    time: Column | None = Field(
        default=None, description="Path of a point's time. Default: when the record was written."
    )
    time_format: Annotated[str, AfterValidator(check_format)] = Field(
        default="", max_length=64, description="As %d.%m.%Y %H:%M; epoch or epoch_ms. Default: ISO 8601."
    )
    zone: Zone = Field(default="UTC", description="Of times without an offset, as in Europe/Athens.")
    unit: Unit | None = Field(default=None, description="Of a series.")
    resolution: Duration | None = Field(default=None, description="Of a series; irregular: any times.")
    keep: int = Field(
        default=0, ge=0, le=366 * 86_400, description="Seconds of a series that are kept, back from its last point."
    )
    title: Title = Field(default="", description="Shown in the catalogue.")
    ttl: int = Field(default=0, ge=0, le=MAX_TTL_S, description="Seconds until an endpoint expires; 0 = never.")
    media_type: Annotated[str, AfterValidator(_media_type)] = Field(
        default="application/octet-stream", description="Of kind = 'bytes'."
    )
    envelope: Literal["", "debezium", "cloudevents"] = Field(
        default="", description="Around the value: Debezium's change events, or CloudEvents."
    )
    on_invalid: Literal["stop", "skip"] = Field(
        default="stop", description="For a record that cannot be stored: stop the source there, or count and skip it."
    )

    @model_validator(mode="after")
    def _fits_kind(self) -> Self:
        if fault := next(self._conflicts(), ""):
            raise ValueError(fault)
        return self

    def _conflicts(self) -> Iterator[str]:
        given = self.model_fields_set
        if self.kind == "series" and (self.unit is None or self.resolution is None):
            yield "kind = 'series' needs unit and resolution"
        if self.kind != "series" and (own := given & {"time", "time_format", "unit", "resolution", "zone", "keep"}):
            yield f"{min(own)} needs kind = 'series'"
        if self.kind != "bytes" and "media_type" in given:
            yield "media_type needs kind = 'bytes'"
        if self.kind == "notice" and self.value is not None:
            yield "a notice has no value"

    @property
    def skips(self) -> bool:
        """True if records that cannot be stored are skipped."""
        return self.on_invalid == "skip"

    @property
    def claims(self) -> Sequence[Claim]:
        """The endpoint, or everything below the fixed part of the template."""
        first, brace, _ = self.endpoint.partition("{")
        return [Claim(first.rpartition("/")[0], below=True) if brace else Claim(first)]

    @property
    def fields(self) -> list[str]:
        """The paths in the template."""
        return FIELD.findall(self.endpoint)

    def wanted(self) -> dict[str, frozenset[str]]:
        """Return the texts of ``where``, by path."""
        return _texts(self.where)

    def ending(self) -> dict[str, frozenset[str]]:
        """Return the texts of ``gone``, by path."""
        return _texts(self.gone)


def _texts(given: Mapping[str, str | list[str]]) -> dict[str, frozenset[str]]:
    return {path: frozenset([one] if isinstance(one, str) else one) for path, one in given.items()}
