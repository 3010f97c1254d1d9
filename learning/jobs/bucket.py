"""Paths in a bucket of an S3 service, with the methods of ``pathlib.Path`` needed for the pipeline's tables.

Endpoint, region and credentials come from the standard environment variables of AWS, or the machine's role; the driver
uses PyArrow and delta-rs, Spark's tasks Hadoop's connector ``s3a``. Objects cannot be renamed:
:meth:`BucketPath.rename` copies, so a reader may see both.
"""

import hashlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from diem.errors import ConfigurationError, DiemError

SCHEMES: Final = ("s3", "s3a")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
"""Name of a bucket."""
_KEY: Final = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*(/[A-Za-z0-9_=-][A-Za-z0-9._=-]*)*")
"""Keys that need no escapes in URIs."""
_LOCAL_REGION: Final = "us-east-1"
"""Dummy region for self-hosted services, which ignore it."""
_ATTEMPTS: Final = 3
_CONNECT_S: Final = 5
_REQUEST_S: Final = 60
_LEFTOVER_MS: Final = 86_400_000


@dataclass(eq=False)
class BucketUnavailable(DiemError):
    """The bucket does not exist, access is denied, or its service does not answer."""

    template = "the bucket of {place} cannot be used ({reason}): nothing is lost, run it again later"
    retriable = True

    place: "BucketPath"
    reason: str


class BadBucket(ConfigurationError):
    """A URI is not a location in a bucket."""


class ObjectStatus(NamedTuple):
    """Size and age of an object, named as those of files."""

    st_size: int
    st_mtime_ns: int


class BucketPath(PurePosixPath):
    """A bucket and the key of an object in it, or the prefix of several; its text is the URI.

    Methods raise ``BucketUnavailable``, and ``FileNotFoundError`` like ``pathlib.Path``.
    """

    @classmethod
    def parse(cls, uri: str) -> "BucketPath":
        """Parse the location in a URI. Raises ``BadBucket``."""
        scheme, _, rest = uri.partition("://")
        bucket, _, key = rest.partition("/")
        key = key.rstrip("/")
        if scheme not in SCHEMES or _NAME.fullmatch(bucket) is None or (key and _KEY.fullmatch(key) is None):
            raise BadBucket(f"{uri} is not s3://BUCKET/PATH, with letters, digits, '.', '_', '=' and '-' in the path")
        return cls(bucket, key)

    def __str__(self) -> str:
        return f"s3://{self.key}"

    @property
    def key(self) -> str:
        """The bucket and the key, in PyArrow's form."""
        return "/".join(self.parts)

    @property
    def spark_uri(self) -> str:
        """The location in Hadoop's form."""
        return f"s3a://{self.key}"

    @property
    def digest(self) -> str:
        """A short name of the location, for local files."""
        return hashlib.sha256(self.key.encode()).hexdigest()[:16]

    def require_bucket(self) -> None:
        """Raise ``BucketUnavailable`` unless the bucket exists."""
        try:
            there = BucketPath(self.parts[0]).exists()
        except BucketUnavailable as error:
            raise BucketUnavailable(self, error.reason) from error
        if not there:
            raise BucketUnavailable(self, "there is no such bucket")

    def exists(self) -> bool:
        """Return whether this object exists, or any below this prefix."""
        with self._clear_errors():
            return bool(_file_system().get_file_info(self.key).type != _fs().FileType.NotFound)

    def is_dir(self) -> bool:
        """Return whether there are objects below this prefix."""
        with self._clear_errors():
            return bool(_file_system().get_file_info(self.key).type == _fs().FileType.Directory)

    def glob(self, pattern: str) -> Iterator["BucketPath"]:
        """Yield the objects and prefixes that match, in any order; the pattern's parts are names, wildcards or both."""
        first, _, rest = pattern.partition("/")
        for name in self._names():
            if fnmatchcase(name, first):
                yield from (self / name).glob(rest) if rest else (self / name,)

    def _names(self) -> list[str]:
        with self._clear_errors():
            found = _file_system().get_file_info(_fs().FileSelector(self.key, allow_not_found=True))
        return [each.base_name for each in found]

    def stat(self) -> ObjectStatus:
        """Return size and age of an object."""
        with self._clear_errors():
            found = _file_system().get_file_info(self.key)
        if not found.is_file:
            raise FileNotFoundError(str(self))
        return ObjectStatus(int(found.size), int(found.mtime_ns))

    def read_bytes(self) -> bytes:
        """Return the content of an object."""
        with self._clear_errors(), _file_system().open_input_stream(self.key) as stream:
            return bytes(stream.read())

    def write_bytes(self, content: bytes) -> int:
        """Write an object, whole; return its size."""
        with self._clear_errors(), _file_system().open_output_stream(self.key) as stream:
            return int(stream.write(content))

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the content of an object as text."""
        return self.read_bytes().decode(encoding)

    def write_text(self, content: str, encoding: str = "utf-8") -> int:
        """Write text as an object, whole; return its size."""
        return self.write_bytes(content.encode(encoding))

    def mkdir(self, *, parents: bool, exist_ok: bool = False) -> None:
        """Do nothing: a prefix exists with its objects."""

    def unlink(self) -> None:
        """Remove an object."""
        with self._clear_errors():
            _file_system().delete_file(self.key)

    def rename(self, target: "BucketPath") -> None:
        """Copy an object within the service, and remove the original."""
        with self._clear_errors():
            _file_system().move(self.key, target.key)

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        with clear_bucket_errors(self):
            yield


Folder: TypeAlias = Path | BucketPath
"""A place of tables."""


@contextmanager
def clear_bucket_errors(place: Folder) -> Iterator[None]:
    """Raise errors of PyArrow and delta-rs at a bucket's service as ``BucketUnavailable``; leave those of files."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if isinstance(place, BucketPath):
            raise BucketUnavailable(place, _cause(error)) from error
        raise


def _cause(error: OSError) -> str:
    """Return the message of a service or its client, without the stack trace."""
    text = " ".join(str(error).split())
    return re.sub(r"^When .*?AWS Error ", "", text)[:300]


def open_binary(file: Folder) -> Any:  # noqa: ANN401  # a file object of Python or of PyArrow
    """Open a file for random reads of bytes."""
    if isinstance(file, BucketPath):
        with clear_bucket_errors(file):
            return _file_system().open_input_file(file.key)
    return file.open("rb")


@contextmanager
def open_parquet(file: Folder) -> Iterator[Any]:
    """Open a Parquet file with PyArrow."""
    from pyarrow import parquet  # noqa: PLC0415  # an extra

    with open_binary(file) as opened:
        yield parquet.ParquetFile(opened)


def remove_tree(folder: Folder) -> None:
    """Remove a folder with its content, if it exists; for a local one, as far as possible."""
    if not isinstance(folder, BucketPath):
        shutil.rmtree(folder, ignore_errors=True)
    elif folder.is_dir():
        with clear_bucket_errors(folder):
            _file_system().delete_dir(folder.key)


def download(source: BucketPath, folder: Path, pattern: str) -> None:
    """Copy matching objects below a prefix into a new folder."""
    folder.mkdir(parents=True)
    for each in source.glob(pattern):
        with open_binary(each) as stream, (folder / each.name).open("xb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)


def temporary(place: BucketPath) -> BucketPath:
    """Return a new prefix below a location; remove leftovers of killed processes, older than a day."""
    now = time.time_ns() // 1_000_000
    for each in list(place.glob("*-*")):
        begun = each.name.partition("-")[0]
        if begun.isdecimal() and int(begun) < now - _LEFTOVER_MS:
            remove_tree(each)
    return place / f"{now}-{uuid.uuid4().hex}"


class ObjectStore(NamedTuple):
    """Location of the buckets; None: the libraries' default."""

    endpoint: str | None
    """URL; None for that of AWS."""
    region: str | None


def service(environment: Mapping[str, str]) -> ObjectStore:
    """Return the service from the standard environment variables.

    Raises:
        BadBucket: the endpoint is not a URL.
    """
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if endpoint is None:
        return ObjectStore(None, region)
    parts = urlsplit(endpoint)
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path.strip("/"):
        raise BadBucket(f"AWS_ENDPOINT_URL is http://HOST:PORT or https://HOST:PORT, not {endpoint}")
    return ObjectStore(f"{parts.scheme}://{parts.netloc}", region or _LOCAL_REGION)


def delta_location(folder: Folder) -> tuple[str, dict[str, str] | None]:
    """Return the URI of a Delta table, and options for delta-rs beyond the environment."""
    if not isinstance(folder, BucketPath):
        return str(folder), None
    endpoint, region = service(os.environ)
    options = {
        # A commit is the exclusive creation of an object.
        "aws_conditional_put": "etag",
        "connect_timeout": f"{_CONNECT_S}s",
        "timeout": f"{_REQUEST_S}s",
        "max_retries": str(_ATTEMPTS),
    }
    if region is not None:
        options["aws_region"] = region
    if endpoint is not None:
        options |= {"aws_endpoint": endpoint, "allow_http": str(endpoint.startswith("http:")).lower()}
    return str(folder), options


def spark_settings(scratch: Path | None) -> dict[str, str]:
    """Return the settings of ``s3a``. Spark itself passes the credentials of the environment on to executors.

    Args:
        scratch: folder of the driver for parts of objects that are being written; None: that of each executor.
    """
    endpoint, region = service(os.environ)
    found = {
        "connection.establish.timeout": f"{_CONNECT_S}s",
        "attempts.maximum": str(_ATTEMPTS),
        "retry.limit": str(_ATTEMPTS),
    }
    if scratch is not None:
        found["buffer.dir"] = str(scratch / "s3a")
    if region is not None:
        found["endpoint.region"] = region
    if endpoint is not None:
        found |= {"endpoint": endpoint, "path.style.access": "true"}
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in found.items()}


def _fs() -> Any:  # noqa: ANN401
    from pyarrow import fs  # noqa: PLC0415  # an extra

    return fs


def _file_system() -> Any:  # noqa: ANN401  # PyArrow has no types
    return _connected(service(os.environ))


@cache
def _connected(found: ObjectStore) -> Any:  # noqa: ANN401
    options: dict[str, Any] = {} if found.region is None else {"region": found.region}
    if found.endpoint is not None:
        scheme, _, host = found.endpoint.partition("://")
        options |= {"scheme": scheme, "endpoint_override": host}
    retries = _fs().AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS)
    return _fs().S3FileSystem(connect_timeout=_CONNECT_S, request_timeout=_REQUEST_S, retry_strategy=retries, **options)
