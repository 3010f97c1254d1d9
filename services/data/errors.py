"""Errors of the Data Service; ``api/problems.py`` maps them to HTTP statuses."""

from dataclasses import dataclass

from diem.errors import DiemError


class DataError(DiemError):
    """Root of the Data Service's errors; ``code`` is stable, for programs to compare."""

    code = "error"


class MalformedBody(DataError):
    """An unparsable body: not JSON, not UTF-8, or nested too deeply."""

    code = "malformed"


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


class WrongUnit(InvalidDataset):
    """A dataset whose unit or resolution differs from its endpoint's."""

    code = "wrong_unit"


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
