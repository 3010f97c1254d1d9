"""The table ``[[source]]`` of a webhook."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from services.data.files.mapping import Column
from services.data.sources.records.table import FIELD, RecordTable
from services.data.sources.tables import SecretFile, header_name
from services.data.sources.webhook.signatures import Encoding, Scheme, SchemeName

_HEADER: Final = re.compile("header/.*", re.DOTALL)


def _lower(path: str) -> str:
    """Return a path whose header field is in lower case: names of HTTP have none."""
    return path.lower() if _HEADER.fullmatch(path) else path


def _several(raw: object) -> object:
    return [raw] if isinstance(raw, dict) else raw


_FieldName = Annotated[str, AfterValidator(lambda name: header_name(name).lower())]


class WebhookConfig(RecordTable):
    """Deliveries of another service to ``POST /v1/hooks/NAME``, each of which is a record, or has several."""

    type: Literal["webhook"]
    scheme: SchemeName = Field(
        default="standard",
        description="Of signatures: Standard Webhooks, GitHub's, an HMAC-SHA256 of the body, or no more than a secret.",
    )
    secret: Annotated[list[SecretFile], BeforeValidator(_several)] = Field(
        min_length=1, max_length=2, description="File of the secret; two while it is rotated."
    )
    header: _FieldName | None = Field(default=None, description="Of scheme = 'hmac': the field of the signature.")
    encoding: Encoding = Field(default="hex", description="Of scheme = 'hmac': that of the signature.")
    id_header: _FieldName | None = Field(
        default=None, description="Of scheme = 'hmac' and 'bearer': the field of the delivery's id."
    )
    rows: Column | None = Field(
        default=None, description="Path of an array in the body, each member of which is a record."
    )
    max_bytes: int = Field(default=1024 * 1024, ge=1, le=32 * 1024 * 1024, description="Largest body.")
    on_invalid: Literal["refuse", "skip"] = Field(  # type: ignore[assignment]  # nothing can stop: no delivery waits
        default="refuse",
        description="For what cannot be stored: refuse the delivery with 422, or count, skip and accept it.",
    )

    @field_validator("endpoint", mode="after")
    @classmethod
    def _of_lower_fields(cls, text: str) -> str:
        return FIELD.sub(lambda found: "{" + _lower(found[1]) + "}", text)

    @field_validator("value", "time", mode="after")
    @classmethod
    def _of_lower_field(cls, path: str | None) -> str | None:
        return None if path is None else _lower(path)

    @field_validator("where", "gone", mode="after")
    @classmethod
    def _by_lower_fields(cls, texts: Mapping[str, Any]) -> dict[str, Any]:
        return {_lower(path): text for path, text in texts.items()}

    @model_validator(mode="after")
    def _fits_scheme(self) -> Self:
        if fault := next(self._scheme_conflicts(), ""):
            raise ValueError(fault)
        return self

    def _scheme_conflicts(self) -> Iterator[str]:
        if (self.scheme == "hmac") != (self.header is not None):
            yield "header and scheme = 'hmac' belong together"
        if self.scheme != "hmac" and "encoding" in self.model_fields_set:
            yield "encoding needs scheme = 'hmac'"
        if self.scheme in {"standard", "github"} and self.id_header is not None:
            yield "id_header needs scheme = 'hmac' or 'bearer': this one has an id of its own"

    @property
    def signatures(self) -> Scheme:
        """How deliveries are signed."""
        return Scheme(self.scheme, self.header or "", self.encoding, self.id_header or "")
