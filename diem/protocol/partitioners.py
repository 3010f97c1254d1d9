"""Hashes by which producers choose the partition of a key."""

import zlib
from enum import StrEnum
from struct import unpack
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Return the 32-bit MurmurHash2 of ``key`` with Kafka's seed, unsigned (Kafka: ``Utils.murmur2``)."""
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
    """Return the partition of ``key`` in a topic of ``count`` partitions (docs/internals.md section 3)."""
    return (murmur2(key) & 0x7FFFFFFF) % count


class Partitioner(StrEnum):
    """The hash by which producers choose the partition of a key."""

    MURMUR2 = "murmur2"
    """Of Kafka's own producer in Java, and of most others."""
    CRC32 = "crc32"
    """``consistent_random`` of librdkafka, its default."""

    def place(self, key: bytes, count: int) -> int:
        """Return the partition of ``key`` among ``count``."""
        return partition_of(key, count) if self is Partitioner.MURMUR2 else zlib.crc32(key) % count
