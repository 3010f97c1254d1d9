"""The partition of a key, held against the vectors of Kafka's own tests (UtilsTest.testMurmur2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.protocol.partitions import murmur2, partition_of

VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), VECTORS.items())
def test_the_hash_is_kafkas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=300))
def test_the_hash_is_that_of_the_kafka_client_in_use(key: bytes) -> None:
    from aiokafka.partitioner import murmur2 as theirs  # noqa: PLC0415

    assert murmur2(key) == theirs(key)


@given(st.binary(max_size=300), st.integers(1, 1000))
def test_every_key_has_one_of_the_partitions(key: bytes, count: int) -> None:
    assert 0 <= partition_of(key, count) < count


def test_one_partition_takes_everything() -> None:
    assert {partition_of(f"/e/{n}".encode(), 1) for n in range(100)} == {0}
