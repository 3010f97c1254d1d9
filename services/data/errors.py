"""The errors of the Data Service. Each knows what is wrong; the HTTP edge alone knows statuses (api/problems.py)."""

from diem.errors import DiemError


class DataError(DiemError):
    """Root of the Data Service's errors. ``code`` is stable: programs may compare it."""

    code = "error"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def __str__(self) -> str:
        return self.detail


class Malformed(DataError):
    """A body that cannot be read at all: not JSON, not UTF-8, nested too deeply."""

    code = "malformed"


class TooLarge(DataError):
    """A body or a dataset above its size limit."""

    code = "too_large"


class Invalid(DataError):
    """A body that can be read but is not a dataset; ``where`` is a JSON path or a line of the CSV text."""

    code = "invalid_dataset"

    def __init__(self, detail: str, where: str = "") -> None:
        super().__init__(f"{where}: {detail}" if where else detail)
        self.reason = detail
        self.where = where


class WrongUnit(Invalid):
    """A dataset whose unit or resolution is not the one that its endpoint has."""

    code = "wrong_unit"


class KeyReused(DataError):
    """An Idempotency-Key that came before with another request."""

    code = "idempotency_key_reused"


class Owned(DataError):
    """A write through the API to an endpoint that belongs to a source."""

    code = "owned_by_source"

    def __init__(self, endpoint: str, source: str) -> None:
        super().__init__(f"{endpoint} is kept by the source {source!r} and cannot be written through the API")
        self.endpoint = endpoint
        self.source = source


class Unknown(DataError):
    """An endpoint that never existed."""

    code = "unknown_endpoint"

    def __init__(self, endpoint: str) -> None:
        super().__init__(f"there is no endpoint {endpoint}")
        self.endpoint = endpoint


class Gone(DataError):
    """An endpoint that was deleted, with the version of its deletion."""

    code = "gone"

    def __init__(self, endpoint: str, version: int) -> None:
        super().__init__(f"{endpoint} was deleted")
        self.endpoint = endpoint
        self.version = version


class NotKept(DataError):
    """A version that an endpoint never had, or that is no longer kept."""

    code = "version_not_kept"

    def __init__(self, endpoint: str, version: int) -> None:
        super().__init__(f"version {version} of {endpoint} is not kept")
        self.endpoint = endpoint
        self.version = version


class TooManyEndpoints(DataError):
    """The store holds as many endpoints as it may."""

    code = "too_many_endpoints"


class Unavailable(DataError):
    """The store cannot commit now (full disk, locked database) or has too much to do; nothing was changed."""

    code = "store_unavailable"
    retriable = True

    def __init__(self, detail: str, retry_after_s: int = 1) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class StoreInUse(DataError):
    """Another process has the store open: two writers would each tell their readers half of the changes."""

    code = "store_in_use"


class StoreReplaced(StoreInUse):
    """The database was put back, or another one put in its place, under the process that has it open."""

    code = "store_replaced"

    def __init__(self, detail: str) -> None:
        super().__init__(f"{detail}: it was replaced while it was in use")
