"""Errors of the Data Service; ``api/problems.py`` maps them to HTTP statuses."""

from dataclasses import dataclass

from diem.errors import DiemError


class DataError(DiemError):
    """Root of the Data Service's errors; ``code`` is stable, for programs to compare."""

    code = "error"


class MalformedBody(DataError):
    """An unparsable body: not JSON, not UTF-8, or nested too deeply."""

    code = "malformed"


class MissingPackage(DataError):
    """Content that cannot be read without a package that is not installed."""

    code = "missing_package"


class DatasetTooLarge(DataError):
    """A dataset, or a body or file of datasets, above its size limit."""

    code = "too_large"


@dataclass(eq=False)
class InvalidDataset(DataError):
    """An invalid dataset; ``where`` is a JSON path or a line of the CSV text."""

    code = "invalid_dataset"

    reason: str
    where: str = ""

    def __str__(self) -> str:
        """Return place, if known, and reason."""
        return f"{self.where}: {self.reason}" if self.where else self.reason


class NoRows(InvalidDataset):
    """A file in which the mapping finds no row."""


class WrongUnit(InvalidDataset):
    """A dataset whose unit or resolution differs from its endpoint's."""

    code = "wrong_unit"


@dataclass(eq=False)
class WrongKind(DataError):
    """Content of another kind than its endpoint's."""

    template = "{endpoint} is of the kind {stored}, not {given}: delete it first, or send {media_type}"
    code = "wrong_kind"

    endpoint: str
    stored: str
    given: str
    media_type: str


@dataclass(eq=False)
class UnpatchableKind(DataError):
    """A PATCH that the endpoint's kind does not have."""

    code = "unpatchable"

    endpoint: str
    kind: str
    media_type: str
    patches: str
    """Media types of its patches; empty: none."""

    def __str__(self) -> str:
        """Return one line with the media types that are possible."""
        found = f"{self.endpoint} is of the kind {self.kind}"
        if not self.patches:
            return f"{found}, of which no part can be changed: PUT it as a whole"
        return f"{found}, which is patched with {self.patches}, not with {self.media_type}"


@dataclass(eq=False)
class ScriptRefused(DataError):
    """Content that pages of the system's own origin could load as a script."""

    template = "{media_type} would run in pages of this origin: send scripts as text/plain"
    code = "unsupported_media_type"

    media_type: str


class PatchRefused(InvalidDataset):
    """A patch that does not fit the stored content."""

    code = "patch_refused"


@dataclass(eq=False)
class PreconditionFailed(DataError):
    """If-Match or If-None-Match does not hold; ``version`` is the current one, 0 if there is none."""

    template = "{endpoint} has changed: its version is {version}"
    code = "precondition_failed"

    endpoint: str
    version: int

    def __str__(self) -> str:
        """Return one line."""
        return super().__str__() if self.version else f"{self.endpoint} does not exist"


@dataclass(eq=False)
class KeptByStore(DataError):
    """A write to a collection."""

    template = "{endpoint} is a collection, which lists its members by itself: write to a name without the last slash"
    code = "collection"

    endpoint: str


class IdempotencyKeyReused(DataError):
    """An Idempotency-Key already used for another request."""

    code = "idempotency_key_reused"


@dataclass(eq=False)
class OwnedBySource(DataError):
    """A write through the API to an endpoint claimed by a source."""

    template = "{endpoint} is kept by the source {source!r} and cannot be written through the API"
    code = "owned_by_source"

    endpoint: str
    source: str


@dataclass(eq=False)
class UnknownEndpoint(DataError):
    """An endpoint that never existed, or was forgotten after its deletion."""

    template = "there is no endpoint {endpoint}"
    code = "unknown_endpoint"

    endpoint: str


@dataclass(eq=False)
class EndpointDeleted(DataError):
    """A deleted endpoint, with the version of its deletion."""

    template = "{endpoint} was deleted"
    code = "gone"

    endpoint: str
    version: int


@dataclass(eq=False)
class VersionNotKept(DataError):
    """A version of an endpoint that never existed or is no longer retained."""

    template = "version {version} of {endpoint} is not kept"
    code = "version_not_kept"

    endpoint: str
    version: int


@dataclass(eq=False)
class CheckpointMoved(DataError):
    """Changes of a source that do not follow its stored position, which is ``position``; None: it has none."""

    template = "the source {source!r} is at {position} in {part}: these changes do not follow"
    code = "checkpoint_moved"

    source: str
    part: str
    position: str | None


@dataclass(eq=False)
class ChangeRefused(DataError):
    """The first refused one of several changes of a source; none of them is stored."""

    template = "{refusal}"
    code = "change_refused"

    index: int
    refusal: DataError


@dataclass(eq=False)
class UnknownSource(DataError):
    """A source of records that is not configured."""

    template = "there is no source {name!r} of records (a topic, a database, a broker)"
    code = "unknown_source"

    name: str


class TooManyEndpoints(DataError):
    """The store has reached its limit of endpoints."""

    code = "too_many_endpoints"


@dataclass(eq=False)
class VersionsUsedUp(DataError):
    """The next version of an endpoint would be unparsable for readers: a wrong clock made the last one."""

    template = (
        "{endpoint} has no versions left, because a clock was wrong: give it new ones with `diem backup` and "
        "`diem restore --replace`"
    )
    code = "versions_used_up"

    endpoint: str


@dataclass(eq=False)
class StoreUnavailable(DataError):
    """The store cannot commit now (full disk, locked database, full queue); nothing was changed."""

    template = "{reason}"
    code = "store_unavailable"
    retriable = True

    reason: str
    retry_after_s: int = 1


class WrongClock(DataError):
    """This machine's clock is evidently wrong: its versions would stay and block later ones."""

    code = "wrong_clock"


class StoreInUse(DataError):
    """Another process has the store open; with two writers, readers would get half of the changes each."""

    code = "store_in_use"


@dataclass(eq=False)
class StoreReplaced(StoreInUse):
    """The database was rolled back or replaced while open in this process."""

    template = "{reason}: it was replaced while it was in use"
    code = "store_replaced"

    reason: str
