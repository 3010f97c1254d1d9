"""The partition of an endpoint: Kafka's default partitioner, so that every client of the topic agrees on it."""

from struct import unpack
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """The 32-bit MurmurHash2 of ``key`` with Kafka's seed, as an unsigned number (Kafka: ``Utils.murmur2``)."""
    length = len(key)
    h = _SEED ^ length
    whole = length & ~3
    for word in unpack(f"<{whole >> 2}I", key[:whole]):
        k = word * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if rest := key[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of(key: bytes, count: int) -> int:
    """The partition of ``key`` in a topic of ``count`` partitions (docs/protocol.md section 3)."""
    return (murmur2(key) & 0x7FFFFFFF) % count
