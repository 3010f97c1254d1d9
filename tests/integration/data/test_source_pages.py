"""Pages of results of an HTTP source, and the pace of its requests."""

import json
from pathlib import Path
from typing import Any

import pytest

from diem.process.clock import ManualClock
from services.data.sources.config import load
from services.data.sources.http import HttpSource
from services.data.sources.pacing import HostPacer
from services.data.sources.runner import SourceRunner
from tests.integration.data.source_bench import Bench
from tests.support.file_threads import FILES
from tests.support.publisher import Publisher, Reply, Sent, published

HOURS = [f"2026-01-01T{hour:02}" for hour in range(24)]


def page(*hours: int, **more: Any) -> Reply:
    points = [{"time": f"{HOURS[hour]}:00Z", "value": hour} for hour in hours]
    return Reply(json.dumps({"points": points, **more}), headers={"Content-Type": "application/json"})


def table(*hours: int) -> Reply:
    return Reply("time,value\n" + "".join(f"{HOURS[hour]}:00Z,{hour}\n" for hour in hours))


def secret_file(directory: Path) -> None:
    (directory / "key").write_text("s3cr3t")
    (directory / "key").chmod(0o600)


SECRETS = 'headers = { a = { file = "key" } }\nquery = { token = { file = "key" } }\n'
EXPECTED = {f"{HOURS[hour]}:00": hour for hour in range(4)}


async def test_links_in_json_are_followed_with_secrets(tmp_path: Path, publisher: Publisher) -> None:
    secret_file(tmp_path)

    def answer(sent: Sent) -> Reply:
        match sent.query.get("after"):
            case None:
                return page(0, 1, links={"next": "?after=1"})
            case "1":
                return page(2, links={"next": f"{publisher.url}/other?after=2&token=mine"})
        # Pages may overlap where rows were added meanwhile.
        return page(2, 3, links={"next": None})

    publisher.answer = answer
    bench = Bench(tmp_path, publisher, SECRETS + 'pages = { next = "links/next" }', path="/p.json")
    assert await bench.poll() is None
    assert bench.values() == EXPECTED
    assert [sent.headers["a"] for sent in publisher.requests] == ["s3cr3t"] * 3
    assert [sent.query["token"] for sent in publisher.requests] == ["s3cr3t", "s3cr3t", "mine"]
    assert [sent.path for sent in publisher.requests] == ["/p.json", "/p.json", "/other"]
    await bench.poll()
    assert len(bench.stored) == 1


async def test_the_link_field_is_followed(tmp_path: Path, publisher: Publisher) -> None:
    links = {"/p.csv": '</first>; rel="first", </2,x>; rel="last next"; title="a, b"', "/2,x": "</3>; rel=next"}
    tables = {"/p.csv": table(0), "/2,x": table(1, 2), "/3": table(3)}
    publisher.answer = lambda sent: tables[sent.path]._replace(headers={"Link": links.get(sent.path, "</>; rel=up")})
    bench = Bench(tmp_path, publisher, "pages = { link = true }")
    assert await bench.poll() is None
    assert bench.values() == EXPECTED


@pytest.mark.parametrize("end", [Reply("time,value\n"), Reply(""), Reply(status=404), Reply(status=204)])
async def test_numbered_pages_end_with_an_empty_one(tmp_path: Path, publisher: Publisher, end: Reply) -> None:
    tables = {"0": table(0, 1), "2": table(2, 3), "4": end}
    publisher.answer = lambda sent: tables[sent.query["offset"]]
    bench = Bench(tmp_path, publisher, 'pages = { parameter = "offset", first = 0, step = 2 }', path="/p.csv?limit=2")
    assert await bench.poll() is None
    assert bench.values() == EXPECTED


async def test_numbered_pages_of_json_end_with_an_empty_array(tmp_path: Path, publisher: Publisher) -> None:
    pages = {"1": page(0, 1, more={"rows": [1]}), "2": page(2, 3, more={"rows": [1]}), "3": page(more={"rows": []})}
    publisher.answer = lambda sent: pages[sent.query["page"]]
    bench = Bench(tmp_path, publisher, 'pages = { parameter = "page", rows = "more/rows" }', path="/p.json")
    assert await bench.poll() is None
    assert bench.values() == EXPECTED


MAPPED = """
[source.mapping]
format = "json"
rows = "data/items"
time = "at"
value = "mw"
"""


@pytest.mark.parametrize("pages", ['parameter = "page"', 'next = "next"'])
async def test_pages_of_other_layouts_are_joined_and_one_may_be_empty(
    tmp_path: Path, publisher: Publisher, pages: str
) -> None:
    def answer(sent: Sent) -> Reply:
        number = int(sent.query.get("page", 1))
        items = [{"at": f"{HOURS[hour]}:00Z", "mw": hour} for hour in ([0, 1], [2, 3], [])[number - 1]]
        body = {"data": {"items": items}, "next": f"?page={number + 1}" if number < 3 else None}
        return Reply(json.dumps(body), headers={"Content-Type": "application/json"})

    publisher.answer = answer
    bench = Bench(tmp_path, publisher, f"pages = {{ {pages} }}\n{MAPPED}", path="/p")
    assert await bench.poll() is None
    assert bench.values() == EXPECTED
    assert len(publisher.requests) == 3


async def test_cursors_are_sent_as_the_parameter(tmp_path: Path, publisher: Publisher) -> None:
    pages = {"": page(0, 1, cursor="a+b"), "a+b": page(2, cursor=7), "7": page(3)}
    publisher.answer = lambda sent: pages[sent.query.get("c", "")]
    bench = Bench(tmp_path, publisher, 'pages = { next = "cursor", parameter = "c" }', path="/p.json")
    assert await bench.poll() is None
    assert bench.values() == EXPECTED


BEYOND = "there are more than 3 pages (pages: most)"


@pytest.mark.parametrize(
    ("pages", "answer", "expected"),
    [
        ('next = "n"', lambda sent: page(0, n=f"?x={sent.query.get('x', '')}x"), BEYOND),
        ('parameter = "n"', lambda sent: page(int(sent.query["n"])), BEYOND),
        (
            'parameter = "x"',
            lambda _sent: page(0),
            "pages: page 2 repeats an earlier one: is x the name of its parameter?",
        ),
        (
            'next = "n"',
            lambda _sent: page(0, n="?y=1"),
            "pages: page 2 repeats an earlier one: its address was there before",
        ),
        (
            'next = "n", parameter = "p"',
            lambda _sent: page(0, n="a"),
            "pages: page 2 repeats an earlier one: its cursor was there before",
        ),
        ('next = "n"', lambda _sent: page(0, n=12), "pages: n is not a URL: if it is a cursor, give its parameter"),
        ('next = "n"', lambda _sent: page(0, n="http://a:b/"), "pages: the next page has an invalid address"),
        ('next = "n"', lambda _sent: table(0), "pages: the answer is not JSON"),
        (
            'next = "n"',
            lambda _sent: page(0, n="http://evil.example/"),
            'the next page is to another host, evil.example, which is not followed: redirects = ["evil.example"]',
        ),
        (
            'parameter = "n"',
            lambda _sent: Reply('{"a": []}'),
            "pages: there is no array of rows in the answer: give its path (rows)",
        ),
        (
            'parameter = "n"',
            lambda sent: page(int(sent.query["n"]), x="x" * 800),
            "the pages have more than 1000 bytes together (max_bytes)",
        ),
    ],
)
async def test_pages_without_end_are_refused(
    tmp_path: Path, publisher: Publisher, pages: str, answer: Any, expected: str
) -> None:
    publisher.answer = answer
    fields = f"pages = {{ {pages}, most = 3 }}\nmax_bytes = 1000"
    bench = Bench(tmp_path, publisher, fields, path="/p.json")
    error = await bench.poll()
    assert str(error).startswith(expected)
    assert bench.stored == []


async def test_pages_on_an_allowed_host_are_sent_no_secrets(tmp_path: Path, publisher: Publisher) -> None:
    secret_file(tmp_path)
    async with published() as other:
        other.answer = lambda _sent: page(2, 3)
        publisher.answer = lambda _sent: page(0, 1, next=f"{other.url}/p2.json")
        fields = SECRETS + f'pages = {{ next = "next" }}\nredirects = ["127.0.0.1:{other.port}"]'
        bench = Bench(tmp_path, publisher, fields, path="/p.json")
        assert await bench.poll() is None
        assert bench.values() == EXPECTED
        assert "s3cr3t" not in str(other.requests)


async def test_a_failed_page_stores_nothing(tmp_path: Path, publisher: Publisher) -> None:
    publisher.answer = lambda sent: table(0) if sent.query["page"] == "1" else Reply(status=500)
    bench = Bench(tmp_path, publisher, 'pages = { parameter = "page" }')
    assert str(await bench.poll()).startswith("status 500")
    assert bench.stored == []


# The pace


async def test_requests_keep_their_distance(tmp_path: Path, publisher: Publisher) -> None:
    tables = {"1": table(0, 1), "2": table(2, 3), "3": Reply("")}
    publisher.answer = lambda sent: tables[sent.query["page"]]
    bench = Bench(tmp_path, publisher, 'per_minute = 30\npages = { parameter = "page" }')
    await bench.poll()
    assert bench.slept == [2.0, 2.0]
    bench.clock.advance(10)
    await bench.poll()
    assert bench.slept == [2.0, 2.0, 2.0, 2.0]


async def test_sources_of_one_host_share_the_distance() -> None:
    clock = ManualClock()
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    pacer = HostPacer(clock, sleep)
    await pacer.wait("a.example", 30)
    await pacer.wait("a.example")
    await pacer.wait("b.example", 30)
    await pacer.wait("a.example", 60)
    assert slept == [2.0, 2.5]
    clock.advance(60)
    await pacer.wait("a.example", 60)
    assert len(slept) == 2


async def test_the_default_pace_leaves_room_for_all_polls_of_a_host() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    pacer = HostPacer(ManualClock(), sleep)
    for _ in range(3):
        pacer.expect("a.example", 100.0)
    for _ in range(2):
        await pacer.wait("a.example")
    assert slept == [0.1]


def test_the_sources_of_a_configuration_share_a_pace(tmp_path: Path, publisher: Publisher) -> None:
    first = Bench(tmp_path, publisher, "per_minute = 600").file.read_text()
    second = first.replace('"p"', '"q"').replace('"/p"', '"/q"')
    (tmp_path / "diem.toml").write_text(first + second)
    runner = SourceRunner.configured(load(tmp_path / "diem.toml"), ManualClock(), convert=FILES.convert)
    sources = [source for source in runner._sources if isinstance(source, HttpSource)]
    assert len(sources) == 2
    assert len({id(source._reader._retriever._pacer) for source in sources}) == 1
