"""The interface of a kind of data, with what holds for content that the system does not look into."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from diem.protocol.update import iso
from services.data.errors import InvalidDataset
from services.data.kinds.representation import NO_LABELS, Representation

MAX_TITLE: Final = 200
"""Maximum number of characters of a title, as in the store's column."""


class Stored(Protocol):
    """A stored version of an endpoint."""

    @property
    def version(self) -> int:
        """The version."""
        ...

    @property
    def changed_ms(self) -> int:
        """Time of acceptance in Unix milliseconds."""
        ...

    @property
    def media_type(self) -> str:
        """The media type of the content."""
        ...

    @property
    def content(self) -> bytes:
        """The content in canonical form."""
        ...


class Format(NamedTuple):
    """One form in which an endpoint can be read."""

    suffix: str
    """Of the entity tag: ``"<version>-<suffix>"``."""
    media_type: str = ""
    """The Content-Type; empty: that of the content."""
    accepted: tuple[str, ...] = ()
    """Names of the form in Accept; empty: any."""
    is_converted: bool = False
    """True if all of the content is rewritten for it."""


class Body(NamedTuple):
    """A request body and what completes it.

    Attributes:
        content: as received. media_type: canonical. fields: of the query. labels: of the stored version, as
        :func:`~services.data.kinds.representation.label_text` returns them.
    """

    content: bytes
    media_type: str
    fields: Mapping[str, str] = {}
    labels: str = NO_LABELS

    @property
    def title(self) -> str:
        """The title in the query; empty without one. Raises InvalidDataset."""
        title = self.fields.get("title", "")
        if len(title) > MAX_TITLE:
            raise InvalidDataset(f"a title has at most {MAX_TITLE} characters")
        # PostgreSQL cannot store NUL characters in text.
        return title.replace("\0", "")


def envelope(endpoint: str, stored: Stored) -> bytes:
    """Return a JSON object with endpoint, version and time, followed by the fields of the content, unchanged."""
    head = f'{{"endpoint":"{endpoint}","version":{stored.version},"time":"{iso(stored.changed_ms)}"'.encode()
    return head + (b"}" if stored.content == b"{}" else b"," + stored.content[1:])


class DataKind:
    """How bodies of one kind become representations, and those answers. Pure."""

    name: ClassVar[str]
    formats: ClassVar[tuple[Format, ...]]
    """The forms of an answer; the first is the default."""
    patches: ClassVar[frozenset[str]] = frozenset()
    """Media types of PATCH bodies."""

    def parse(self, endpoint: str, body: Body) -> Representation:
        """Validate a body and return it in canonical form; raises DataError."""
        raise NotImplementedError

    def patch(self, endpoint: str, stored: Stored, body: Body) -> Representation:
        """Apply a patch, with one of :attr:`patches`, to stored content; raises DataError."""
        raise NotImplementedError

    def undo(self, content: bytes, undo: bytes) -> bytes:
        """Return the content before a patch; ``undo`` is that of the representation that the patch made."""
        raise NotImplementedError

    def check_successor(self, endpoint: str, stored: str, new: str) -> None:
        """Check the labels of new content against the stored ones; raises DataError if they do not fit."""

    def render(self, endpoint: str, stored: Stored, suffix: str) -> bytes:
        """Return the body of an answer in the format with this suffix."""
        del endpoint, suffix
        return stored.content

    def inline(self, endpoint: str, stored: Stored) -> bytes | None:
        """Return the value of ``data`` in an update, with the fields after it; None: it is always fetched."""
        raise NotImplementedError

    def describe(self, content: bytes) -> dict[str, Any]:
        """Return the description of a version for the history."""
        return {"bytes": len(content)}

    def revised(self, new: bytes, old: bytes) -> int | None:
        """Return the number of values that differ from those of the predecessor; None: the kind has none to count."""
        del new, old
        return None
