"""The errors of the Data Service. Each knows what is wrong; the HTTP edge alone knows statuses (api/problems.py)."""

from dataclasses import dataclass

from diem.errors import DiemError


class DataError(DiemError):
    """Root of the Data Service's errors. ``code`` is stable: programs may compare it."""

    code = "error"

    @property
    def detail(self) -> str:
        """The text, as a field of a problem document."""
        return str(self)


class MalformedBody(DataError):
    """A body that cannot be read at all: not JSON, not UTF-8, nested too deeply."""

    code = "malformed"


class BodyTooLarge(DataError):
    """A body or a dataset above its size limit."""

    code = "too_large"


@dataclass(eq=False)
class InvalidDataset(DataError):
    """A body that can be read but is not a dataset; ``where`` is a JSON path or a line of the CSV text."""

    code = "invalid_dataset"

    reason: str
    where: str = ""

    def __str__(self) -> str:
        """Return the place, if it is known, and the reason."""
        return f"{self.where}: {self.reason}" if self.where else self.reason


class WrongUnit(InvalidDataset):
    """A dataset whose unit or resolution is not the one that its endpoint has."""

    code = "wrong_unit"


class IdempotencyKeyReused(DataError):
    """An Idempotency-Key that came before with another request."""

    code = "idempotency_key_reused"


@dataclass(eq=False)
class OwnedBySource(DataError):
    """A write through the API to an endpoint that belongs to a source."""

    template = "{endpoint} is kept by the source {source!r} and cannot be written through the API"
    code = "owned_by_source"

    endpoint: str
    source: str


@dataclass(eq=False)
class UnknownEndpoint(DataError):
    """An endpoint that never existed."""

    template = "there is no endpoint {endpoint}"
    code = "unknown_endpoint"

    endpoint: str


@dataclass(eq=False)
class EndpointDeleted(DataError):
    """An endpoint that was deleted, with the version of its deletion."""

    template = "{endpoint} was deleted"
    code = "gone"

    endpoint: str
    version: int


@dataclass(eq=False)
class VersionNotKept(DataError):
    """A version that an endpoint never had, or that is no longer kept."""

    template = "version {version} of {endpoint} is not kept"
    code = "version_not_kept"

    endpoint: str
    version: int


class TooManyEndpoints(DataError):
    """The store holds as many endpoints as it may."""

    code = "too_many_endpoints"


@dataclass(eq=False)
class StoreUnavailable(DataError):
    """The store cannot commit now (full disk, locked database) or has too much to do; nothing was changed."""

    template = "{reason}"
    code = "store_unavailable"
    retriable = True

    reason: str
    retry_after_s: int = 1


class StoreInUse(DataError):
    """Another process has the store open: two writers would each tell their readers half of the changes."""

    code = "store_in_use"


@dataclass(eq=False)
class StoreReplaced(StoreInUse):
    """The database was put back, or another one put in its place, under the process that has it open."""

    template = "{reason}: it was replaced while it was in use"
    code = "store_replaced"

    reason: str
