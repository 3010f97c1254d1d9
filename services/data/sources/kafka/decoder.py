"""Records of the client as records of a source."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from services.data.errors import DataError, InvalidDataset
from services.data.sources.kafka.formats import ValueFormat
from services.data.sources.kafka.positions import SourcePartition
from services.data.sources.kafka.table import KafkaTable
from services.data.sources.records.record import MISSING, Record

NO_HEADERS: Final[Mapping[str, str]] = {}


class RecordDecoder:
    """Makes records of those of the client."""

    def __init__(self, table: KafkaTable, values: ValueFormat, keys: ValueFormat) -> None:
        self._values = values
        self._keys = keys
        self._uses_key = table.uses_key

    async def decode(self, partition: SourcePartition, topic_id: str, raw: Sequence[Any]) -> list[Record]:
        """Return the records of one partition; raises InputFailed if a registry cannot be reached."""
        await self._values.prepare(each.value for each in raw)
        await self._keys.prepare(each.key for each in raw)
        names = {"topic": partition.topic, "partition": str(partition.number)}
        return [self._record(each, topic_id, names) for each in raw]

    def _record(self, raw: Any, topic_id: str, names: Mapping[str, str]) -> Record:  # noqa: ANN401  # of the library
        value: Any = MISSING
        key = text = fault = None
        if raw.value is not None:
            try:
                value, text = self._values.decode(raw.value), self._values.raw(raw.value)
            except DataError as error:
                fault = error
        if raw.key is not None and (self._uses_key or raw.value is None):
            try:
                key = self._keys.decode(raw.key)
            except DataError as error:
                fault = InvalidDataset(f"its key: {error} (key: key_format)")
        position = f"{topic_id}:{raw.offset + 1}"
        headers = _headers(raw.headers) if raw.headers else NO_HEADERS
        return Record(position, value, key, text, headers, names, max(0, raw.timestamp), fault)


def _headers(raw: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    return {name: text.decode(errors="replace") for name, text in raw if text is not None}
