"""Memory bounds of a bridge, in their own module so that ``diem size`` can import them without Kafka's client."""

from typing import Final

FETCH_BYTES: Final = 16 << 20
"""Limit of one broker response, and of all prefetched data; compressed, as stored by the broker."""
