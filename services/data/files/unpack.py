"""Takes files out of archives, finds their formats, and decodes their text.

Archives are read within bounds that hold before anything is decoded: names, counts and sizes are those of the list of
files, and decoding ends at the size that it states.
"""

import codecs
import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Final, Literal, NamedTuple

from services.data.errors import InvalidDataset, MalformedBody
from services.data.files.grid import FileLimits, InputFile
from services.data.files.mapping import FORMATS, Format, Mapping

Signature = Format | Literal["html"]
MAX_RATIO: Final = 200
"""Highest compression of a file above :data:`_SMALL_BYTES`: tables reach 10 to 50, bombs 1000."""
_SMALL_BYTES: Final = 10 * 1024 * 1024
_LEVELS: Final = 3
"""Of archives within archives."""
_GZIP: Final = b"\x1f\x8b"
_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
_ENTRY: Final = b"PK\x01\x02"
"""First bytes of an entry in a zip archive's list of files."""
_ENCRYPTED: Final = 0x1
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The others decode without a bound."""
_OTHERS: Final = (
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"BZh", "compressed with bzip2"),
    (b"\xfd7zXZ\x00", "compressed with xz"),
    (b"\x28\xb5\x2f\xfd", "compressed with Zstandard"),
    (b"%PDF-", "a PDF document"),
)
_MEDIA_TYPES: Final[tuple[tuple[re.Pattern[str], Format], ...]] = (
    (re.compile(r"text/(csv|tab-separated-values)|application/csv"), "csv"),
    (re.compile(r"application/(json|[\w.-]+\+json)"), "json"),
    (re.compile(r"(application|text)/(xml|[\w.-]+\+xml)"), "xml"),
)
_NAMES: Final[dict[str, str]] = {
    "csv": "a text of cells",
    "xlsx": "a workbook (xlsx, xls, ods)",
    "json": "JSON",
    "xml": "XML",
    "parquet": "Parquet",
}
_BINARY: Final = ("xlsx", "parquet")
_HTML: Final = "this is an HTML page, not data: its address may need a login, or another path"
_SHOWN: Final = 80
"""Characters of a name in an error."""
_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Member(NamedTuple):
    """One file, out of its archive, and its format; ``label`` names it in messages, if it is in an archive."""

    name: str
    format: Format
    body: bytes
    label: str = ""


def unpack(file: InputFile, mapping: Mapping, limits: FileLimits) -> Iterator[Member]:
    """Yield the files of ``file``: those of an archive with names like ``mapping.member``, or the file itself.

    The format is the mapping's, else that of the name, the media type, or the first bytes. Formats that are not text
    are known by their first bytes alone.

    Raises:
        InvalidDataset: an archive beyond the limits, or with unusual names; another format; an HTML page.
        MalformedBody: an archive that is damaged or incomplete.
    """
    members = _Unpacking(mapping, limits).members(_Input(file.name, file.body, file.media_type), 1)
    first = next(members, None)
    if first is None:
        raise InvalidDataset(f"no file in the archive is like {mapping.member!r} (key: member)")
    yield first
    yield from members


class _Input(NamedTuple):
    """A file that may be an archive."""

    name: str
    body: bytes
    media_type: str = ""
    label: str = ""


class _Unpacking:
    """One run, with what is left of the limits."""

    def __init__(self, mapping: Mapping, limits: FileLimits) -> None:
        self._mapping = mapping
        self._limits = limits
        self._left = limits.decoded_bytes

    def members(self, file: _Input, level: int) -> Iterator[Member]:
        name, body, _, label = file
        if not body.startswith((_GZIP, *_ZIP)):
            yield self._member(file, signature_of(body, label))
            return
        if level > _LEVELS:
            raise InvalidDataset(f"archives within more than {_LEVELS - 1} archives", label)
        if body.startswith(_GZIP):
            plain = gunzip(body, self._left, label)
            self._left -= len(plain)
            name = re.sub(r"\.gz$", "", name, flags=re.IGNORECASE)
            yield from self.members(file._replace(name=name, body=plain), level + 1)
            return
        with open_zip(body, self._limits, label) as archive:
            if is_workbook(archive):
                yield self._member(file, "xlsx")
            else:
                yield from self._files(archive, label, level)

    def _files(self, archive: zipfile.ZipFile, label: str, level: int) -> Iterator[Member]:
        for info in archive.infolist():
            path = PurePosixPath(info.filename)
            if not path.name or info.is_dir() or path.name.startswith(".") or path.parts[0] == "__MACOSX":
                continue
            plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
            if plain.suffix.lower() == ".zip" or self._is_wanted(plain):
                if info.file_size > self._left:
                    raise _too_large(self._limits, label)
                self._left -= info.file_size
                body = archive.read(info)
                yield from self.members(_Input(info.filename, body, label=info.filename[:_SHOWN]), level + 1)

    def _is_wanted(self, path: PurePosixPath) -> bool:
        return any(fnmatchcase(each, self._mapping.member) for each in (str(path), path.name))

    def _member(self, file: _Input, found: Signature) -> Member:
        name, body, media_type, label = file
        wanted = self._mapping.format
        if found == "html":
            if wanted != "xml":
                raise InvalidDataset(_HTML, label)
            found = "xml"
        if wanted != "auto":
            if wanted != found and (wanted in _BINARY or found in _BINARY):
                raise InvalidDataset(f"this is {_NAMES[found]}, not {_NAMES[wanted]} (key: format)", label)
            found = wanted
        elif found not in _BINARY:
            claimed = FORMATS.get(PurePosixPath(name).suffix.lower()) or _format_of(media_type)
            # Many an .xls is text.
            found = claimed if claimed is not None and claimed not in _BINARY else found
        if found in _BINARY:
            return Member(name, found, body, label)
        text = body if self._mapping.encoding else recoded(body, media_type)
        return Member(name, found, text, label)


def gunzip(body: bytes, most: int, label: str = "") -> bytes:
    """Decompress gzip.

    Raises:
        InvalidDataset: more than ``most`` bytes, or compressed more than :data:`MAX_RATIO` times.
        MalformedBody: damaged or incomplete.
    """
    most = min(most, max(_SMALL_BYTES, MAX_RATIO * len(body)))
    with _damage_named("gzip", label), gzip.GzipFile(fileobj=io.BytesIO(body)) as archive:
        plain = archive.read(most + 1)
    if len(plain) > most:
        raise InvalidDataset(f"more than {most} bytes when decompressed, of {len(body)}", label)
    return plain


@contextmanager
def open_zip(body: bytes, limits: FileLimits, label: str = "") -> Iterator[zipfile.ZipFile]:
    """Open a zip archive whose list of files is within the limits; errors of reading it are named.

    Raises:
        InvalidDataset: too many or too large files, some that share bytes, encrypted ones, or names out of the archive.
        MalformedBody: damaged or incomplete.
    """
    # The list is read as a whole, so the bound comes first. Each entry must begin with these bytes.
    if body.count(_ENTRY) > limits.members:
        raise InvalidDataset(f"more than {limits.members} files in the archive", label)
    with _damage_named("zip", label), zipfile.ZipFile(io.BytesIO(body)) as archive:
        files = archive.infolist()
        if sum(each.compress_size for each in files) > len(body):
            raise InvalidDataset("files in the archive share the same bytes", label)
        for each in files:
            _check_entry(each, label)
        if sum(each.file_size for each in files) > limits.decoded_bytes:
            raise _too_large(limits, label)
        yield archive


def _too_large(limits: FileLimits, label: str) -> InvalidDataset:
    return InvalidDataset(f"more than {limits.decoded_bytes} bytes in the archive when decompressed", label)


def _check_entry(entry: zipfile.ZipInfo, label: str) -> None:
    path = entry.filename
    # Names are labels alone; one that leads out of the archive is an attack on others.
    if path.startswith("/") or "\\" in path or ":" in path[:2] or ".." in path.split("/"):
        raise InvalidDataset(f"the archive has a file {path[:_SHOWN]!r}, outside of it", label)
    if entry.flag_bits & _ENCRYPTED:
        raise InvalidDataset(f"{path[:_SHOWN]!r} is encrypted: repack the archive without a password", label)
    if entry.compress_type not in _METHODS:
        method = entry.compress_type
        raise InvalidDataset(f"{path[:_SHOWN]!r} is compressed by method {method}: repack it with deflate", label)
    if entry.file_size > max(_SMALL_BYTES, MAX_RATIO * entry.compress_size):
        raise InvalidDataset(f"{path[:_SHOWN]!r} would have {entry.file_size} bytes of {entry.compress_size}", label)


@contextmanager
def _damage_named(kind: str, label: str) -> Iterator[None]:
    where = f"{label}: " if label else ""
    try:
        yield
    except EOFError:
        raise MalformedBody(f"{where}the {kind} archive is incomplete") from None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, ValueError, OSError) as error:
        raise MalformedBody(f"{where}the {kind} archive is damaged or incomplete: {str(error)[:120]}") from None


def is_workbook(archive: zipfile.ZipFile) -> bool:
    """Return whether an archive is a workbook of Office Open XML or OpenDocument."""
    names = set(archive.namelist())
    return "[Content_Types].xml" in names or {"mimetype", "content.xml"} <= names


def repack(body: bytes, limits: FileLimits, wanted: Callable[[str], bool], label: str = "") -> bytes:
    """Return a zip archive of the wanted files, uncompressed: for readers that decode without a bound.

    Raises:
        InvalidDataset, MalformedBody: as :func:`open_zip`.
    """
    target = io.BytesIO()
    with open_zip(body, limits, label) as archive, zipfile.ZipFile(target, "w") as plain:
        for info in archive.infolist():
            if wanted(info.filename):
                plain.writestr(info.filename, archive.read(info))
    return target.getvalue()


def signature_of(body: bytes, label: str = "") -> Signature:
    """Return the format that the first bytes show: csv if no other.

    Raises:
        InvalidDataset: archives and documents that are not read.
    """
    for first, kind in _OTHERS:
        if body.startswith(first):
            raise InvalidDataset(f"this is {kind}: give it as gzip, zip, or a plain file", label)
    if body[257:262] == b"ustar":
        raise InvalidDataset("this is a tar archive: give its files as a zip archive", label)
    if body.startswith(b"PAR1"):
        return "parquet"
    if body.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        return "xlsx"
    head = body[:2048].decode(_encoding_by_mark(body) or "latin-1", "ignore").lstrip("\ufeff \t\r\n").lower()
    if head.startswith("<"):
        return "html" if "<html" in head or head.startswith("<!doctype html") else "xml"
    return "json" if head.startswith(("{", "[")) else "csv"


def _format_of(media_type: str) -> Format | None:
    plain = media_type.partition(";")[0].strip().lower()
    return next((format_ for pattern, format_ in _MEDIA_TYPES if pattern.fullmatch(plain)), None)


def recoded(body: bytes, media_type: str) -> bytes:
    """Return text in UTF-8 if its media type states another encoding and the text does not; else the body."""
    stated = _CHARSET.search(media_type)
    if stated is None or _encoding_by_mark(body) or body.lstrip()[:5] == b"<?xml":
        return body
    try:
        encoding = codecs.lookup(stated[1]).name
        if not encoding.startswith("utf-16"):
            # Many servers state a default of theirs; what is UTF-8 is hardly ever anything else.
            with suppress(UnicodeDecodeError):
                body.decode()
                return body
        # By latin-1, servers mean its superset (WHATWG Encoding Standard).
        return body.decode("cp1252" if encoding == "iso8859-1" else encoding).encode()
    except (UnicodeError, LookupError, ValueError):
        return body


def _encoding_by_mark(body: bytes) -> str:
    return next((encoding for mark, encoding in _BYTE_ORDER_MARKS if body.startswith(mark)), "")


def text_of(member: Member, mapping: Mapping) -> str:
    """Return the text of a file, in the encoding of its byte order mark, of the mapping, or UTF-8.

    Raises:
        MalformedBody: it is none; the error names the key.
    """
    return decode(member.body, mapping, member.label)


def decode(body: bytes, mapping: Mapping, label: str) -> str:
    """Return the text of a body, as :func:`text_of`."""
    where = f"{label}: " if label else ""
    encoding = _encoding_by_mark(body) or mapping.encoding or "utf-8"
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        remedy = "is it cp1252, latin-1 or utf-16" if encoding.startswith("utf") else "is it another"
        line = body.count(b"\n", 0, error.start) + 1
        fault = f"byte {body[error.start : error.start + 1].hex()} in line {line} is not {encoding.upper()}"
        raise MalformedBody(f"{where}{fault}: {remedy}? (key: encoding)") from None
    if "\0" in text:
        raise MalformedBody(f"{where}the text has a NUL character: is it utf-16? (key: encoding)")
    return text
