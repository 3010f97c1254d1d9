"""Takes the deliveries of a webhook: verifies, converts and stores each, and answers once it is on the disk."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import structlog

from diem.process.auth import BadKeyFile, read_secret
from diem.process.clock import Clock
from diem.protocol import media_types
from services.data.errors import (
    ChangeRefused,
    DataError,
    IdempotencyKeyReused,
    InvalidDataset,
    StoreUnavailable,
    TooManyEndpoints,
)
from services.data.kinds.json_text import load
from services.data.large import run_sized
from services.data.sources.records.converted import ConvertedChanges
from services.data.sources.records.converter import RecordConverter
from services.data.sources.records.record import MISSING, Record, member
from services.data.sources.source import ChangeSink, Fault, Health, Intake
from services.data.sources.webhook.signatures import BadSecret, Signed, Unverified
from services.data.sources.webhook.table import WebhookConfig
from services.data.store import Accepted, Change, IdempotencyKey

MAX_ROWS: Final = 1000
"""Maximum number of records of a delivery: they are stored in one transaction."""
RETRY_AFTER_S: Final = 30
"""Time after which to send a delivery again whose secret cannot be read."""
_OWNER_BYTES: Final = 4

_logger = structlog.get_logger(__name__)


class WebhookSource:
    """A webhook; nothing is taken before :meth:`consume`.

    Args:
        config: its table.
        clock: of replay windows.
        converter: of its records.
    """

    def __init__(self, config: WebhookConfig, clock: Clock, converter: RecordConverter) -> None:
        self.name = config.name
        self.claims = config.claims
        self._intake = Intake()
        self.health = Health(config.name, clock, intake=self._intake)
        self.max_bytes = config.max_bytes
        self._config = config
        self._clock = clock
        self._converter = converter
        self._scheme = config.signatures
        self._secrets = [(each.prefix, Path(each.file)) for each in config.secret]
        self._rows = None if config.rows is None else config.rows.split("/")
        # Ids of write keys are letters and digits.
        self._key_owner = "+" + hashlib.blake2b(config.name.encode(), digest_size=_OWNER_BYTES).hexdigest()[:7]
        self._sink: ChangeSink | None = None

    async def consume(self, sink: ChangeSink) -> None:
        """Take deliveries until cancelled."""
        self._sink = sink
        try:
            await self.try_once(sink)
            await asyncio.Event().wait()
        finally:
            self._sink = None

    async def try_once(self, sink: ChangeSink) -> None:
        """Check that the secret can be used: there is no sample of what will be delivered."""
        del sink
        try:
            self._keys()
        except (BadKeyFile, BadSecret) as error:
            self.health.failed(str(error), fault=Fault.UNREACHABLE)
        else:
            self.health.succeeded()

    def signed(self, headers: Mapping[str, str]) -> Signed:
        """Return the signature of a delivery, before its body has been read; raises Unverified."""
        return self._scheme.signed(headers, self._clock.wall_ms() / 1000)

    async def verify(self, signed: Signed, body: bytes) -> None:
        """Check a signature.

        Raises:
            Unverified: it is wrong.
            StoreUnavailable: the secret cannot be read now.
        """
        try:
            keys = self._keys()
        except (BadKeyFile, BadSecret) as error:
            self.health.failed(str(error), fault=Fault.UNREACHABLE)
            raise StoreUnavailable("the secret of this webhook cannot be used", RETRY_AFTER_S) from error
        await run_sized(lambda: self._scheme.verify(signed, keys, body), len(body))
        if self.health.fault is Fault.UNREACHABLE:
            self.health.recovered()

    def count_unverified(self, error: Unverified) -> None:
        """Count a delivery without a valid signature; the source stays well, since anybody may send one."""
        self._intake.unverified += 1
        self._intake.last_unverified = error.reason
        self._intake.last_unverified_ms = self._clock.wall_ms()

    async def store(self, signed: Signed, headers: Mapping[str, str], body: bytes) -> list[Accepted]:
        """Store a verified delivery; return one answer for each change, once they are committed.

        A delivery that was stored gets the same answer again, as long as its id is remembered. One that is refused is
        counted: it is a fault of its sender, not of the source.

        Raises:
            DataError: it cannot be stored.
            StoreUnavailable: not now.
        """
        try:
            accepted = await self._store(signed, headers, body)
        except (StoreUnavailable, TooManyEndpoints) as error:
            self.health.failed(str(error), fault=Fault.STORE)
            raise
        except DataError as error:
            self._refused(signed, error)
            if self._config.on_invalid == "refuse":
                raise
            accepted = []
        self._intake.records += 1
        self._intake.last_ms = self._clock.wall_ms()
        self.health.succeeded()
        return accepted

    async def _store(self, signed: Signed, headers: Mapping[str, str], body: bytes) -> list[Accepted]:
        changes = await run_sized(lambda: self._changes(signed, headers, body), len(body))
        if not changes:
            return []
        if self._sink is None:
            raise StoreUnavailable("the service is starting", 1)
        try:
            return await (await self._sink.enqueue(changes, None, key=self._key(signed, body)))
        except ChangeRefused as error:
            raise error.refusal from error
        except IdempotencyKeyReused:
            raise IdempotencyKeyReused(f"the {signed.id_field} {signed.id[:40]!r} was used for another body") from None

    def _keys(self) -> list[bytes]:
        """Return the keys of all secrets; raises BadKeyFile, BadSecret."""
        return [self._scheme.key(prefix + read_secret(file)) for prefix, file in self._secrets]

    def _key(self, signed: Signed, body: bytes) -> IdempotencyKey | None:
        if not signed.id:
            return None
        # Ids are of any length, and of any characters that a header field may have.
        id_ = signed.id if len(signed.id) <= 64 else hashlib.blake2b(signed.id.encode(), digest_size=32).hexdigest()
        return IdempotencyKey(id_, hashlib.blake2b(body, digest_size=16).digest(), self._key_owner)

    def _changes(self, signed: Signed, headers: Mapping[str, str], body: bytes) -> list[Change]:
        """Return the changes of a delivery, in order; raises DataError."""
        changes = ConvertedChanges(self._converter)
        for index, record in enumerate(self._records(signed, headers, body)):
            changes.add(index, self._converter.convert(record))
        return [each.change for each in changes.all()]

    def _records(self, signed: Signed, headers: Mapping[str, str], body: bytes) -> Sequence[Record]:
        config = self._config
        time_ms = signed.time_s * 1000 or self._clock.wall_ms()
        fields = {**headers, **_attributes(headers)} if config.envelope == "cloudevents" else headers
        value, is_json = self._value(headers.get("content-type", ""), body)
        if self._rows is None:
            return [Record(signed.id, value, raw=body if is_json else None, headers=fields, time_ms=time_ms)]
        found = member(value, self._rows)
        if not isinstance(found, list):
            raise InvalidDataset(f"{config.rows} is no array (key: rows)")
        if len(found) > MAX_ROWS:
            raise InvalidDataset(f"{config.rows} has more than {MAX_ROWS} members")
        return [Record(signed.id, each, headers=fields, time_ms=time_ms) for each in found]

    def _value(self, media_type: str, body: bytes) -> tuple[Any, bool]:
        """Return the value of a body, and whether it is JSON; raises DataError."""
        config = self._config
        if not body and config.envelope == "cloudevents":
            return MISSING, False
        if not body and config.kind == "notice":
            return None, False
        name = media_types.essence(media_type)[:60]
        if name in {"", media_types.DOCUMENT} or name.endswith("+json"):
            return load(body), True
        if config.kind in {"document", "series"} or self._rows is not None:
            raise InvalidDataset(f"{name} is not JSON: let the sender use application/json")
        return body, False

    def _refused(self, signed: Signed, error: DataError) -> None:
        refusal = f"delivery {signed.id[:64]}: {error}" if signed.id else f"a delivery: {error}"
        if self._intake.refuse(refusal):
            _logger.warning("delivery refused", source=self.name, error=refusal, refused=self._intake.refused)


def _attributes(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of a CloudEvent in binary mode (HTTP protocol binding 1.0.2, section 3.1.3)."""
    return {f"ce_{name[3:]}": unquote(text) for name, text in headers.items() if name.startswith("ce-")}
