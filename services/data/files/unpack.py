"""Opens files: their members, formats and encodings."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from services.data.errors import MalformedBody
from services.data.files.grid import InputFile, Limits
from services.data.files.mapping import Mapping

FileFormat = Literal["csv", "xlsx", "json", "xml", "parquet"]


class Member(NamedTuple):
    """One file of an archive, or the file itself."""

    name: str
    format: FileFormat
    body: bytes


def unpack(file: InputFile, mapping: Mapping, limits: Limits) -> Iterator[Member]:
    """Yield the files to be read."""
    del limits
    yield Member(file.name, "csv" if mapping.format == "auto" else mapping.format, file.body)


def text_of(member: Member, mapping: Mapping) -> str:
    """Return the text of a member. Raises MalformedBody."""
    try:
        return member.body.decode(mapping.encoding or "utf-8-sig")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"the text is not UTF-8 (byte {error.start}; key: encoding, as 'cp1252')") from None
