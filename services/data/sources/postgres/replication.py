"""The stream of a replication slot, by psycopg2: PostgreSQL's libraries for asyncio do not have its protocol."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Self

import psycopg2
import psycopg2.extensions
import psycopg2.extras

from services.data.sources.postgres.catalog import quoted
from services.data.sources.postgres.positions import lsn_text
from services.data.sources.postgres.session import CONNECT_S, secret, settings
from services.data.sources.postgres.table import PostgresConfig
from services.data.sources.records.attempts import InputFailed

AT_ONCE: Final = 1000
BYTES_AT_ONCE: Final = 4 * 1024 * 1024
"""Maximum number of messages of one read, and of bytes before the last one."""
STATUS_S: Final = 10
"""Between reports to the server, which ends a stream without them after ``wal_sender_timeout``, usually 60 s."""
_KEEPALIVE: Final = {
    "keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 11_000
}  # fmt: skip


class ReplicationStream:
    """Messages of a slot, in the order of commits. Nothing is read ahead of :meth:`read` but what sockets hold."""

    def __init__(self, connection: Any, cursor: Any) -> None:  # noqa: ANN401  # psycopg2's
        self._connection = connection
        self._cursor = cursor
        # Of its own: a cursor that has confirmed everything it has read confirms by itself what it reads later without
        # messages, so that the slot would be ahead of the stored position.
        self._confirming = connection.cursor()
        self._readable = asyncio.Event()

    @classmethod
    async def open(cls, config: PostgresConfig, lsn: int) -> Self:
        """Open the stream of transactions that commit at ``lsn`` or later; raises InputFailed."""
        starting = asyncio.ensure_future(asyncio.to_thread(_start, config, lsn, secret(config)))
        try:
            with _failures():
                return cls(*await asyncio.shield(starting))
        except asyncio.CancelledError:
            # The thread goes on: the slot must not stay in use.
            starting.add_done_callback(_close)
            raise

    @property
    def read_lsn(self) -> int:
        """What commits before this has been read, once :meth:`read` has returned nothing."""
        return int(self._cursor.wal_end)

    async def read(self, timeout_s: float) -> list[bytes]:
        """Return messages, at most :data:`AT_ONCE`; none after some seconds without; raises InputFailed."""
        found = self._read()
        if found:
            return found
        loop, file = asyncio.get_running_loop(), self._connection.fileno()
        self._readable.clear()
        loop.add_reader(file, self._readable.set)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._readable.wait()
        finally:
            loop.remove_reader(file)
        return self._read()

    def confirm(self, lsn: int) -> None:
        """Let the server forget what commits before ``lsn``; also shows that this reader lives. Raises InputFailed."""
        with _failures():
            self._confirming.send_feedback(write_lsn=lsn, flush_lsn=lsn, apply_lsn=lsn, force=True)

    def close(self) -> None:
        """Close the connection."""
        with suppress(psycopg2.Error):
            self._connection.close()

    def _read(self) -> list[bytes]:
        found: list[bytes] = []
        size = 0
        with _failures():
            while (
                len(found) < AT_ONCE and size < BYTES_AT_ONCE and (message := self._cursor.read_message()) is not None
            ):
                found.append(message.payload)
                size += len(message.payload)
        return found


def _start(config: PostgresConfig, lsn: int, password: dict[str, str]) -> tuple[Any, Any]:
    given = " ".join(f"-c {name}={value}" for name, value in settings(config).items() if name not in _OF_LIBPQ)
    connection = psycopg2.connect(
        config.url,
        connection_factory=psycopg2.extras.LogicalReplicationConnection,
        application_name=f"diem {config.name}",
        client_encoding="UTF8",
        connect_timeout=CONNECT_S,
        options=given,
        **_KEEPALIVE,
        **password,
    )
    try:
        cursor = connection.cursor()
        cursor.start_replication(
            slot_name=config.slot_name,
            start_lsn=lsn_text(lsn),
            status_interval=STATUS_S,
            options={"proto_version": "1", "publication_names": quoted(str(config.publication))},
            decode=False,
        )
    except BaseException:
        connection.close()
        raise
    return connection, cursor


def _close(starting: "asyncio.Future[tuple[Any, Any]]") -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result()[0].close()


_OF_LIBPQ: Final = frozenset({"application_name", "client_encoding"})


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except psycopg2.Error as error:
        text = str(error).strip().partition("\n")[0] or type(error).__name__
        if "no message from the libpq" in text:
            text = "the database has closed it"
        raise InputFailed(f"the replication stream: {text}") from error
