"""The publisher's view of the store, used by most of its modules; tests have one in memory."""

from typing import Protocol

from diem.fanout.change_map import ChangeMap
from services.data.store.tables import Cursor


class PublishedStore(Protocol):
    """The publisher's view of the Data Service's store."""

    cursor: Cursor | None

    @property
    def changes(self) -> ChangeMap:
        """The latest change of every endpoint."""
        ...

    @property
    def version_floor(self) -> int:
        """The greatest version that a forgotten endpoint may have had."""
        ...

    @property
    def forgotten(self) -> int:
        """The sequence up to which deleted endpoints are forgotten; 0: none ever was."""
        ...

    @property
    def expired(self) -> int:
        """The sequence up to which all deletions are old enough to be forgotten; 0 if none is left."""
        ...

    def deleted(self, upto: int) -> list[bytes]:
        """Return the endpoints whose deletion has a sequence up to ``upto``."""
        ...

    def release_deleted(self, upto: int, cursor: Cursor) -> None:
        """Let the store forget deletions up to ``upto``, and store the cursor no later."""
        ...

    def keep_cursor(self, cursor: Cursor) -> None:
        """Store the cursor with one of the next commits."""
        ...

    def log_is_ahead(self, endpoint: str, version: int) -> None:
        """Mark the store as an older copy: its log has ``version`` of ``endpoint``, beyond the store's."""
        ...
