"""``[[source]] type = "postgres"`` of diem.toml."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationError, model_validator

from services.data.sources.faults import describe
from services.data.sources.postgres.rows import ORIGIN
from services.data.sources.records.table import FIELD, RecordTable
from services.data.sources.source import Claim
from services.data.sources.tables import SecretFile

MIB: Final = 1024 * 1024
_NAME: Final = r"[A-Za-z_\u0080-\uffff][\w$\u0080-\uffff]{0,62}"


def _url(text: str) -> str:
    # There may be several hosts, separated by commas.
    parts = urlsplit(text)
    if parts.scheme not in {"postgresql", "postgres"} or not parts.path.strip("/"):
        raise ValueError("expected postgresql://user@host/database")
    if parts.password is not None or "password=" in parts.query:
        raise ValueError('the password is in a file: password = { file = "..." }')
    return text


def _slot(text: str) -> str:
    if re.fullmatch("[a-z0-9_]{1,63}", text) is None:
        raise ValueError("expected at most 63 small letters, digits and _")
    return text


def _identifier(text: str) -> str:
    if re.fullmatch(_NAME, text) is None:
        raise ValueError("expected a name without quotes")
    return text


def _table(text: str) -> str:
    if re.fullmatch(rf"({_NAME}\.)?{_NAME}", text) is None:
        raise ValueError("expected table or schema.table")
    return text if "." in text else f"public.{text}"


TableName = Annotated[str, AfterValidator(_table)]
Slot = Annotated[str, AfterValidator(_slot)]
Identifier = Annotated[str, AfterValidator(_identifier)]
_OF_A_TABLE: Final = frozenset(RecordTable.model_fields) - {"type", "name", "envelope", "on_invalid"}


class PostgresConfig(RecordTable):
    """The rows of a publication, or of an outbox table."""

    origin: ClassVar[Sequence[str]] = ORIGIN

    type: Literal["postgres"]
    url: Annotated[str, AfterValidator(_url)] = Field(description="As postgresql://user@host/database?sslmode=require.")
    password: SecretFile | None = Field(default=None, description='In a file: { file = "secrets/database" }.')
    publication: Identifier | None = Field(default=None, description="The publication to be read.")
    slot: Slot = Field(default="", description="The replication slot. Default: diem_ and the name of the source.")
    slot_bound: int = Field(
        default=1024, ge=1, le=1024 * 1024, description="MiB of WAL that the slot may retain before the source fails."
    )
    tables: dict[TableName, dict[str, Any]] = Field(
        default={}, max_length=100, description="Only these tables, each with keys of its own, such as endpoint."
    )
    outbox: TableName | None = Field(default=None, description="In place of a publication: a table of changes.")
    channel: Identifier = Field(default="diem", description="Of NOTIFY after a change of the outbox.")
    every: float = Field(
        default=5.0, ge=0.1, le=3600, description="Seconds between reads of the outbox without NOTIFY."
    )
    delete_applied: bool = Field(default=False, description="Delete the rows of the outbox once they are stored.")

    @property
    def slot_name(self) -> str:
        """The name of the slot."""
        return self.slot or "diem_" + re.sub("[^a-z0-9_]", "_", self.name.lower())[:58]

    @model_validator(mode="after")
    def _fits_tables(self) -> Self:
        if fault := next(self._faults(), ""):
            raise ValueError(fault)
        return self

    def _faults(self) -> Iterator[str]:
        given = self.model_fields_set
        if (self.publication is None) == (self.outbox is None):
            yield "exactly one of publication and outbox is needed"
        if self.outbox is not None and (own := given & {"slot", "slot_bound", "tables"}):
            yield f"{min(own)} needs a publication"
        if self.publication is not None and (own := given & {"channel", "every", "delete_applied"}):
            yield f"{min(own)} needs an outbox"
        if self.envelope:
            yield "rows have no envelope"
        for name in self.tables:
            try:
                made = self.of_table(*name.split("."))
            except ValidationError as error:
                fault = error.errors(include_url=False)[0]
                yield f"tables: {name}: {'.'.join(map(str, fault['loc']))}: {describe(fault)}".replace(": :", ":")
                continue
            if made is not None and made.kind == "series" and made.time is None:
                yield f"tables: {name}: kind = 'series' needs time"
        if not self.tables and self.kind == "series" and self.time is None:
            yield "kind = 'series' needs time"

    def of_table(self, schema: str, table: str) -> RecordTable | None:
        """Return what applies to the rows of a table; None: they are not read."""
        name = f"{schema}.{table}"
        if self.tables and name not in self.tables:
            return None
        own = self.tables.get(name, {})
        if unknown := own.keys() - _OF_A_TABLE:
            raise ValueError(f"tables: {name}: unknown field `{min(unknown)}`")
        common = {each: getattr(self, each) for each in self.model_fields_set & _OF_A_TABLE}
        return RecordTable.model_validate({**common, **own, "type": self.type, "name": self.name})

    @property
    def claims(self) -> Sequence[Claim]:
        """Everything below the fixed parts of the templates."""
        found = {claim for name in self.tables for claim in self._claims_of(*name.split("."))} or {*super().claims}
        return sorted(claim for claim in found if not any(_is_within(claim, other) for other in found))

    def _claims_of(self, schema: str, table: str) -> Sequence[Claim]:
        made = self.of_table(schema, table)
        if made is None:
            return []
        named: Mapping[str, str] = {"schema": schema, "table": table}
        text = FIELD.sub(lambda found: named.get(found[1], found[0]), made.endpoint)
        return made.model_copy(update={"endpoint": text}).claims


def _is_within(claim: Claim, other: Claim) -> bool:
    return claim != other and other.below and other.covers(claim.endpoint)
