"""Bounds of a bridge's memory, apart from what keeps them: ``diem size`` reads them without Kafka's client."""

from typing import Final

FETCH_BYTES: Final = 16 << 20
"""Limit of one answer of a broker, and of all that is fetched ahead, as brokers have it: compressed."""
