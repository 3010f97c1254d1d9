"""Records refused by brokers: sent without data, or held, so that others of the partition proceed.

The remedy is up to the operator: the text names topic, setting and command.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

import structlog
from aiokafka import errors as kafka

from diem.errors import DiemError
from diem.kafka.errors import TimestampsRefused
from diem.kafka.topic_config import UPDATES_CONFIG
from diem.protocol.update import has_data

DATA_RETRY_S: Final = 60.0
"""Time that an endpoint's updates are sent without data after one with data was refused."""
RETRY_S: Final = 10.0
"""Retry interval of a refused record without data."""
MAX_MESSAGE: Final = "max.message.bytes"


class InvalidRecordError(kafka.BrokerResponseError):  # type: ignore[misc]  # the library is untyped
    """A record fails the brokers' validation, a code unknown to the client library."""

    errno = 87
    message = "INVALID_RECORD"
    description = "This record has failed the validation on the broker and hence be rejected."


kafka.kafka_errors.setdefault(InvalidRecordError.errno, InvalidRecordError)
_TOO_LARGE: Final = (kafka.MessageSizeTooLargeError, kafka.RecordListTooLargeError)
_REFUSED: Final = (
    *_TOO_LARGE,
    InvalidRecordError,
    kafka.PolicyViolationError,
    kafka.UnsupportedForMessageFormatError,
)


@dataclass(eq=False)
class RecordsRefused(DiemError):
    """The brokers refuse the records of a request; none of its ``count`` records was written."""

    template = "topic {topic} refuses records ({code}): {remedy}"

    topic: str
    code: str
    remedy: str
    count: int


def refusal(topic: str, error: kafka.KafkaError, count: int) -> DiemError | None:
    """Interpret a broker's ``error`` for a request with ``count`` records; None if unrelated to the records."""
    if isinstance(error, kafka.InvalidTimestampError):
        return TimestampsRefused(topic)
    if not isinstance(error, _REFUSED):
        return None
    if isinstance(error, _TOO_LARGE):
        command = f"kafka-configs.sh --alter --topic {topic} --add-config {MAX_MESSAGE}={UPDATES_CONFIG[MAX_MESSAGE]}"
        by_broker = "of a topic without this setting, message.max.bytes of the brokers counts"
        remedy = f"{MAX_MESSAGE} is too small: {command} ({by_broker})"
        return RecordsRefused(topic, error.message, remedy, count)
    remedy = f"exempt {topic} from what the cluster demands of records (schema validation, policies)"
    return RecordsRefused(topic, error.message, remedy, count)


@dataclass(slots=True)
class _Partition:
    """Endpoints of one partition, each with the end of its pause."""

    without_data: dict[bytes, float] = field(default_factory=dict)
    held: dict[bytes, float] = field(default_factory=dict)


class RefusedRecords:
    """Current refusals of the brokers; ``clock`` returns seconds. Bounded by the endpoints of each partition."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._partitions: defaultdict[int, _Partition] = defaultdict(_Partition)
        self._reasons: dict[tuple[str, bool], float] = {}
        """Reason, and whether the record is held -> when it was last given."""
        self._logger = structlog.get_logger("publisher")

    def goes_without_data(self, number: int, endpoint: bytes) -> bool:
        """Return whether an update must be sent without its data."""
        partition = self._partitions.get(number)
        return partition is not None and self._clock() < partition.without_data.get(endpoint, 0.0)

    def held(self, number: int) -> Collection[bytes]:
        """Return the keys waiting for their next attempt."""
        if (partition := self._partitions.get(number)) is None:
            return ()
        now_s = self._clock()
        return {key for key, until in partition.held.items() if now_s < until}

    def refused(self, number: int, key: bytes, value: bytes | None, reason: str) -> None:
        """Record the refusal of a single record: the next attempt omits its data, or waits if it has none."""
        held, partition, now_s = value is None or not has_data(key, value), self._partitions[number], self._clock()
        (partition.held if held else partition.without_data)[key] = now_s + (RETRY_S if held else DATA_RETRY_S)
        what = "a record is refused: it waits" if held else "an update is refused: it goes without its data"
        size = 0 if value is None else len(value)
        self._report(what, reason, held=held, key=key.decode(errors="replace"), bytes=size)

    def all_refused(self, reason: str) -> float:
        """Record a refusal independent of the records; return the seconds until the next attempt."""
        self._report("records are refused: they wait", reason, held=True)
        return RETRY_S

    def _report(self, what: str, reason: str, *, held: bool, **details: object) -> None:
        if (reason, held) not in self._current_reasons():
            self._logger.error(what, reason=reason, **details)
        self._reasons[reason, held] = self._clock()

    def written(self, number: int, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Record that ``records`` were accepted."""
        if (partition := self._partitions.get(number)) is not None:
            for key, value in records:
                if partition.held.pop(key, None) is not None and not any(p.held for p in self._partitions.values()):
                    self._reasons = {key: at for key, at in self._reasons.items() if not key[1]}
                if value is not None and has_data(key, value):
                    partition.without_data.pop(key, None)

    def failure(self) -> str | None:
        """Return the reason why records are held; None if none is."""
        reasons = "; ".join(reason for reason, held in self._current_reasons() if held)
        return f"records wait, and are tried every {RETRY_S:.0f} s: {reasons}" if reasons else None

    def warnings(self) -> list[str]:
        """Return the reasons why updates are sent without data."""
        return [f"updates go without their data: {reason}" for reason, held in self._current_reasons() if not held]

    def _current_reasons(self) -> list[tuple[str, bool]]:
        """Return the reasons of the last two attempts' time."""
        now_s = self._clock()
        return [key for key, at in self._reasons.items() if now_s - at < 2 * (RETRY_S if key[1] else DATA_RETRY_S)]
