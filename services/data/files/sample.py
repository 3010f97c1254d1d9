"""Samples of files: all of a small one, the beginning and the end of a large one, in the same format."""

import gzip
import io
import re
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from services.data.errors import DatasetTooLarge
from services.data.files.grid import InputFile

HEAD_BYTES: Final = 3 * 1024 * 1024
TAIL_BYTES: Final = 1024 * 1024
WHOLE_BYTES: Final = 16 * 1024 * 1024
"""Largest workbook or Parquet file, which is read as a whole."""
MAX_MEMBERS: Final = 20
"""Members of an archive in a sample."""
_GZIP: Final = b"\x1f\x8b"
_ZIP: Final = b"PK\x03\x04"
_WHOLE: Final = (b"PAR1", b"\xd0\xcf\x11\xe0")
"""Signatures of Parquet, and of workbooks before 2007."""
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_JSON: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|["\[\]{},]')
_XML: Final = re.compile(rb"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<(/?)([\w:.-]+)[^<>]*?(/?)>", re.DOTALL)
_CLOSING: Final = {b"[": b"]", b"{": b"}"}


class FileSample(NamedTuple):
    """A file, or parts of it; ``size`` is that of the file in bytes."""

    file: InputFile
    size: int
    is_whole: bool


def read_sample(path: Path) -> FileSample:
    """Read a sample of at most a few megabytes.

    Raises:
        OSError: the file cannot be read.
        DatasetTooLarge: a workbook or Parquet file of more than 16 MiB, which has no parts.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES + TAIL_BYTES)
        if len(head) >= size:
            return FileSample(InputFile(path.name, head), size, is_whole=True)
        if head.startswith(_ZIP) and not _is_workbook(path):
            return FileSample(InputFile(path.name, _archive(path)), size, is_whole=False)
        if head.startswith((*_WHOLE, _ZIP)):
            if size > WHOLE_BYTES:
                raise DatasetTooLarge(f"{path.name} has {size} bytes: of its format, at most are {WHOLE_BYTES}")
            return FileSample(InputFile(path.name, head + file.read()), size, is_whole=True)
        if head.startswith(_GZIP):
            text = zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
            return FileSample(InputFile(path.name, gzip.compress(cut(text), 1)), size, is_whole=False)
        file.seek(size - TAIL_BYTES)
        return FileSample(InputFile(path.name, cut(head[:HEAD_BYTES], file.read(TAIL_BYTES))), size, is_whole=False)


def shortened(file: InputFile) -> InputFile:
    """Return a file of which the middle is left out, if it is a large text."""
    body = file.body
    if len(body) <= HEAD_BYTES + TAIL_BYTES or body.startswith((*_WHOLE, _ZIP, _GZIP)):
        return file
    return replace(file, body=cut(body[:HEAD_BYTES], body[-TAIL_BYTES:]))


def cut(head: bytes, tail: bytes = b"") -> bytes:
    """Return the complete rows of a beginning and an end; of JSON and XML, the beginning with what it opened closed."""
    first = head.lstrip()[:1]
    if first in {b"{", b"["}:
        return close_json(head)
    if first == b"<":
        return close_xml(head)
    if head.startswith(_UTF_16):
        return head[: len(head) // 2 * 2]
    return head[: head.rfind(b"\n") + 1] + tail[tail.find(b"\n") + 1 :]


def close_json(head: bytes) -> bytes:
    """Return the beginning of a JSON text up to its last complete element, with its arrays and objects closed."""
    stack: list[bytes] = []
    end, closing = 0, b""
    for token in _JSON.finditer(head):
        mark = token[0]
        if mark == b'"':  # a text without its end
            break
        if mark in _CLOSING:
            stack.append(_CLOSING[mark])
        elif mark in {b"]", b"}"} and stack:
            stack.pop()
        elif mark == b",":
            end, closing = token.start(), b"".join(reversed(stack))
    return head[:end] + closing


def close_xml(head: bytes) -> bytes:
    """Return the beginning of an XML text up to its last complete element, with the elements around it closed."""
    stack: list[bytes] = []
    end, closing = 0, b""
    for token in _XML.finditer(head):
        ends, name, is_empty = token.groups()
        if name is None:
            continue
        if ends and stack:
            stack.pop()
        elif not ends and not is_empty:
            stack.append(name)
            continue
        end, closing = token.end(), b"".join(b"</%b>" % each for each in reversed(stack))
    return head[:end] + closing


def _is_workbook(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()[:MAX_MEMBERS]
    except (zipfile.BadZipFile, OSError, NotImplementedError):
        return False
    return any(name in {"[Content_Types].xml", "content.xml"} for name in names)


def _archive(path: Path) -> bytes:
    """Return an archive with the beginnings of the members of another one."""
    made = io.BytesIO()
    try:
        with (
            zipfile.ZipFile(path) as archive,
            zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as sample,
        ):
            members = [each for each in archive.infolist() if not each.is_dir()][:MAX_MEMBERS]
            for each in members:
                with archive.open(each) as member:
                    head = member.read(HEAD_BYTES // len(members))
                sample.writestr(each.filename, head if len(head) == each.file_size else cut(head))
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError):
        # The reader of archives names what is wrong with it.
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    return made.getvalue()
