"""Spark's own functions parse canonical lines to the rows that Python does, and leave others to it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pytest

from diem.protocol.traffic import MAX_COUNTED, MAX_EVENT_BYTES, MAX_NAMES, Accessed, TrafficEvent, Type, encode
from learning.jobs import tables
from learning.statistics.constants import DAY_MS, EARLIEST_MS
from tests.support.python_parser import no_canonical_lines
from tests.support.spark_session import as_users_run
from tests.support.traffic import BEGIN, MINUTE, Life, generated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIFE: Final = Life("websocket-1", 0xA1, BEGIN, BEGIN)
CONNECT: Final = encode(LIFE.event(Type.CONNECT, BEGIN, 1, 2))
SUBSCRIBE: Final = encode(LIFE.event(Type.SUBSCRIBE, BEGIN, 1, 2, "/a", "/b/c")._replace(unknown=("/b/c",)))
UNSUBSCRIBE: Final = encode(LIFE.event(Type.UNSUBSCRIBE, BEGIN, 1, 2, "/a", "/b/c"))
COUNTS: Final = encode(LIFE.counts(BEGIN, BEGIN + MINUTE, a=(3, 4), b=(1, 0)))
ACCESS: Final = encode(
    TrafficEvent(
        Type.ACCESS, "0000000000d1-1", BEGIN, "data", since=1, until=2, requests=(Accessed("", "p", "/a", 1, 1),)
    )
)
LONGEST: Final = [f"/{n:03}{'x' * 252}" for n in range(MAX_COUNTED + 1)]


def long(length: int) -> bytes:
    """A valid line of so many bytes."""
    line = json.dumps({**json.loads(CONNECT), "more": ""}, separators=(",", ":"))
    return line.replace('"more":""', f'"more":"{"x" * (length - len(line))}"').encode()


def counts(*names: str) -> bytes:
    return encode(LIFE.counts(BEGIN, BEGIN + 1)).replace(
        b"{}", b"{" + b",".join(b'"%s":[1,2]' % name.encode() for name in names) + b"}"
    )


def subscribe(*names: str) -> bytes:
    return encode(LIFE.event(Type.SUBSCRIBE, BEGIN, 1, 2, *names))


BY_SPARK: Final = (
    *(CONNECT, SUBSCRIBE, UNSUBSCRIBE, COUNTS, counts(), ACCESS, ACCESS.replace(b'"/a"', b'""')),
    ACCESS.replace(b'[""', b'["abcd1234"').replace(b"]]", b'],["","free.plan","/b/c",0,999999999999999]]'),
    COUNTS.replace(b"[3,4]", b"[999999999999999,0]"),
    SUBSCRIBE.replace(b"[1]", b"[1,0,1]"),
    SUBSCRIBE.replace(b"/b/c", b"/a"),
    SUBSCRIBE.replace(b"}", b',"sharers":7}'),
    CONNECT.replace(b"0000000000a1-", b"0000000000a1-99999999999999"),
    CONNECT.replace(b"%d" % BEGIN, b"%d" % EARLIEST_MS),
    counts(*LONGEST[:MAX_COUNTED]),
    subscribe(*LONGEST[:MAX_NAMES]),
    subscribe("/b/", "/b/c/"),
    subscribe("/" + "/".join("a" * 128)[:255]),
)
"""Lines that need no Python."""
BY_PYTHON: Final = (
    *(None, b"", b" ", b"null", b"[]", b"{}", b"\xff\xfe", b"\xef\xbb\xbf" + CONNECT),
    *(ACCESS.replace(b'"p"', name) for name in (b'""', b'"-"', b"1", b'"%s"' % (b"p" * 33))),
    *(ACCESS.replace(b'""', name) for name in (b'"abcd123"', b"null", b'"ABCD1234"')),
    *(ACCESS.replace(b"1,1]", places) for places in (b"1]", b"1,1,1]", b'1,"1"]', b"1,-1]", b"1,1.0]")),
    *(ACCESS.replace(b"/a", name) for name in (b"a", b"/a//", b"/.a")),
    ACCESS.replace(b'"until":2', b'"until":1'),
    *(
        CONNECT[:-1],
        CONNECT + b"}",
        CONNECT + CONNECT,
        CONNECT + b"\n",
        CONNECT + b"\r",
        b" " + CONNECT,
        CONNECT + b"\0",
    ),
    # Fields twice, unknown ones and others in another order; escapes and spaces.
    CONNECT.replace(b"{", b'{"type":"disconnect",'),
    CONNECT.replace(b"}", b',"type":"disconnect"}'),
    COUNTS.replace(b'"/b"', b'"/a"'),
    CONNECT.replace(b"}", b',"more":{"a":[1,{"b":null}]}}'),
    CONNECT.replace(b"}", b',"more":' + b"[" * 900 + b"]" * 900 + b"}"),
    CONNECT.replace(b"}", b',"more":' + b"[" * 2000 + b"]" * 2000 + b"}"),
    json.dumps(json.loads(SUBSCRIBE), sort_keys=True).encode(),
    json.dumps(json.loads(COUNTS), indent=1).encode(),
    SUBSCRIBE.replace(b"/b/c", rb"\/b\u002fc"),
    CONNECT.replace(b'"', b"'"),
    CONNECT.replace(b"}", b"/* a comment */}"),
    # Numbers.
    *(
        COUNTS.replace(b"[3,4]", b"[%s,4]" % number)
        for number in (b"-1", b"-0", b"03", b"3.0", b"3e0", b'"3"', b"true")
    ),
    *(COUNTS.replace(b"[3,4]", b"[%s,4]" % number) for number in (b"NaN", b"Infinity", b"null", b"[3]", b"0x3", b"+3")),
    *(COUNTS.replace(b"[3,4]", b"[%d,4]" % number) for number in (2**53 - 1, 2**53, 2**63, 2**64, 10**30)),
    *(COUNTS.replace(b"[3,4]", pair) for pair in (b"[]", b"[3]", b"[3,4,5]", b"null", b"{}")),
    *(CONNECT.replace(b"%d" % BEGIN, number) for number in (b"0", b"1e12", b"9" * 16, b"9" * 30, b"NaN", b"null")),
    CONNECT.replace(b"%d" % BEGIN, b"%d" % (EARLIEST_MS - 1)),
    CONNECT.replace(b"%d" % BEGIN, b"%d" % (BEGIN + 100 * 365 * DAY_MS)),
    CONNECT.replace(b"0000000000a1-", b"0000000000a1-0"),
    CONNECT.replace(b"0000000000a1-", b"0000000000a1-99999999999999999"),
    *(CONNECT.replace(b"0000000000a1", name) for name in (b"0000000000A1", b"a1", b"\xd9\xa30000000000a")),
    *(CONNECT.replace(b"websocket-1", name) for name in (b"", b"-", b"w" * 65, b"caf\xc3\xa9", b"w\xff", b"w\xc0\xb1")),
    *(CONNECT.replace(b"}", b',"sharers":%s}' % number) for number in (b"0", b"null", b"1.5", b"9007199254740992")),
    # Endpoints.
    *(
        SUBSCRIBE.replace(b"/b/c", name)
        for name in (b"", b"b", b"/b//", b"/b/..", b"/.b", b"/b c", b"/\xc3\xa9", b"/\xff")
    ),
    *(
        SUBSCRIBE.replace(b"/b/c", name)
        for name in (b"/" + b"b" * 256, b"/\xed\xa0\x80", rb"/\ud800", b"/b\\n", b"/b\t")
    ),
    *(SUBSCRIBE.replace(b"[1]", places) for places in (b"[2]", b"[-1]", b"[0.0]", b"[]", b"null", b"[99]", b"[100]")),
    UNSUBSCRIBE.replace(b"}", b',"unknown":[7]}'),
    subscribe(),
    subscribe(*LONGEST[: MAX_NAMES + 1]),
    counts(*LONGEST),
    COUNTS.replace(b'"until":%d' % (BEGIN + MINUTE), b'"until":%d' % BEGIN),
    *(long(MAX_EVENT_BYTES + more) for more in (0, 1)),
    COUNTS.replace(b'"/b"', b'"/b' + b"/b" * MAX_EVENT_BYTES + b'"'),
)
"""Lines that are left to Python: some are events, others not."""


def frame(spark: "SparkSession", *lines: bytes | None) -> "DataFrame":
    arrived = datetime.fromtimestamp(BEGIN / 1000, UTC)
    rows = [(line, arrived, str(number)) for number, line in enumerate(lines)]
    return spark.createDataFrame(rows, "value binary, arrived timestamp, source string")


def rows_of(lines: "DataFrame") -> list[Any]:
    """The rows in the order of the lines, of which ``source`` is the number."""
    read = tables.read_canonical(lines.coalesce(1)).persist()
    numbers = [row["source"] for parsed in ("IS NOT NULL", "IS NULL") for row in read.where(f"json {parsed}").collect()]
    own, others = tables.staged_rows(read).where("kind = 'events'"), tables.other_rows(read.where("json IS NULL"))
    rows = [*own.collect(), *others.collect()]
    read.unpersist()
    return [tuple(row) for _, row in sorted(zip(map(int, numbers), rows, strict=True), key=lambda pair: pair[0])]


@pytest.fixture
def compiled(spark: "SparkSession") -> "Iterator[SparkSession]":
    """The session as users have it: compiled and interpreted expressions are two implementations."""
    with as_users_run(spark):
        yield spark


def test_rows_are_those_of_python(compiled: "SparkSession") -> None:
    recorded = [encode(event) for event, _ in generated(3, clients=20)]
    lines = frame(compiled, *BY_SPARK, *BY_PYTHON, *recorded).persist()
    read = tables.read_canonical(lines).where("json IS NOT NULL").select("source").collect()
    own = len(BY_SPARK), len(BY_SPARK) + len(BY_PYTHON)
    assert {int(row["source"]) for row in read} == {*range(own[0]), *range(own[1], own[1] + len(recorded))}
    found = rows_of(lines)
    with no_canonical_lines():
        assert found == rows_of(lines)
    lines.unpersist()
    # Of the odd lines, some are events.
    odd = [row[0] is not None for row in found[own[0] : own[1]]]
    assert min(sum(odd), len(odd) - sum(odd)) > 10
    assert all(row[0] is not None for row in chain(found[: own[0]], found[own[1] :]))
