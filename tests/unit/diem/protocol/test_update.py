import orjson
import pytest

from diem.protocol import update


@pytest.mark.parametrize("gone", [True, False])
def test_an_update_has_the_layout_that_loops_slice(gone: bool) -> None:
    value = update.encode("/a/b", 1700000000456, 0, gone=gone)
    assert value.startswith(update.prefix_of(b"/a/b") + b"1700000000456,")
    assert value.startswith(update.HEAD)
    assert value.endswith(update.GONE_TAIL) is gone


def test_an_update_is_the_documented_bytes() -> None:
    value = update.encode("/dam/prices/GR", 1700000000456, 1767225600456)
    assert (
        value
        == b'{"type":"update","endpoint":"/dam/prices/GR","version":1700000000456,"time":"2026-01-01T00:00:00.456Z"}'
    )
    gone = update.encode("/dam/prices/GR", 1700000000457, 1767225600456, gone=True)
    assert orjson.loads(gone)["gone"] is True
    assert update.version_of(b"/dam/prices/GR", value) == 1700000000456
    assert update.version_of(b"/dam/prices/GR", gone) == 1700000000457


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b'{"type":"update","endpoint":"/other","version":1700000000456}',
        b'{"type":"update","endpoint":"/e","version":17000}',
        b'{"type":"update","endpoint":"/e","version":-700000000456}',
        b'{"type":"update","endpoint":"/e","version":1700000000456' + b" " * 500,
    ],
)
def test_a_value_that_is_no_update_of_its_endpoint_has_no_version(value: bytes) -> None:
    assert update.version_of(b"/e", value) is None


def test_versions_grow_even_when_the_clock_steps_back() -> None:
    assert update.next_version(0, 1700000000000) == 1700000000000
    assert update.next_version(1700000000000, 1600000000000) == 1700000000001


DATA = b'{"endpoint":"/e","version":1700000000456,"points":[]}'


def test_an_update_with_data_is_the_same_update_and_its_data() -> None:
    plain = update.encode("/e", 1700000000456, 1767225600456)
    value = update.encode("/e", 1700000000456, 1767225600456, data=DATA)
    assert orjson.loads(value) == {**orjson.loads(plain), "data": orjson.loads(DATA)}
    assert update.has_data(b"/e", value)
    assert not update.has_data(b"/e", plain)
    assert update.without_data(b"/e", value) == plain
    assert update.version_of(b"/e", value) == 1700000000456


@pytest.mark.parametrize("gone", [True, False])
def test_an_update_without_data_stays_the_same_bytes(gone: bool) -> None:
    value = update.encode("/e", 1700000000456, 0, gone=gone)
    assert update.without_data(b"/e", value) is value


def test_data_longer_than_allowed_makes_an_update_invalid() -> None:
    longest = update.encode("/e", 1700000000456, 0, data=b"[" + b" " * (update.MAX_DATA_BYTES - 2) + b"]")
    assert update.version_of(b"/e", longest) == 1700000000456
    longer = update.encode("/e", 1700000000456, 0, data=b"[" + b" " * update.MAX_RECORD_BYTES + b"]")
    assert update.version_of(b"/e", longer) is None
