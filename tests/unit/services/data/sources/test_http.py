"""The HTTP source: conditional, bounded, scheduled; a bad answer changes nothing and is reported once."""

import asyncio
import gzip
import math
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.process.backoff import retry_after_s
from diem.process.clock import ManualClock
from services.data.errors import StoreUnavailable
from services.data.kinds import Representation, series
from services.data.sources.config import HttpConfig
from services.data.sources.fetch import PollingClient
from services.data.sources.http import HttpSource, next_time
from tests.support.file_threads import FILES

DAY_S = 24 * 3600
CSV = "time,value\n2026-01-01T00:00:00Z,{}\n"
POLLED = {
    "type": "http",
    "name": "prices",
    "url": "http://source.example/prices.csv",
    "endpoint": "/p",
    "unit": "MW",
    "resolution": "PT1H",
}
Answer = Callable[[httpx.Request], httpx.Response]


class Bench:
    """A source, its server and its store, all in memory."""

    def __init__(self, clock: ManualClock | None = None, **config: Any) -> None:
        self.requests: list[httpx.Request] = []
        self.stored: list[Representation] = []
        self.refuse: Exception | None = None
        self.answer: Answer = lambda _request: httpx.Response(200, text=CSV.format(1))
        self.jitter: list[tuple[float, float]] = []
        wanted = {key: value for key, value in {**POLLED, **config}.items() if value is not None}
        self.clock = clock or ManualClock()
        config_ = HttpConfig.model_validate(wanted)
        self.source = HttpSource(config_, self.clock, convert=FILES.convert, sleep=self._sleep, uniform=self._uniform)

    async def _sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def _uniform(self, low: float, high: float) -> float:
        self.jitter.append((low, high))
        return high

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self.answer(request)

    async def sink(self, datasets: Sequence[Representation], *, source: str) -> None:
        assert source == "prices"
        if self.refuse:
            raise self.refuse
        self.stored += datasets

    async def poll(self) -> float:
        async with PollingClient(5.0, httpx.MockTransport(self._handle)) as client:
            return await self.source.poll(client, self.sink)


async def test_datasets_of_an_answer_are_stored() -> None:
    bench = Bench(title="Prices")
    assert await bench.poll() == 10.0
    (dataset,) = bench.stored
    assert (dataset.endpoint, dataset.label("unit"), dataset.title) == ("/p", "MW", "Prices")
    assert bench.source.health.status()["ok"]


async def test_an_answer_is_converted_by_a_mapping() -> None:
    mapping = {"rows": "data", "time": "at", "value": "v", "name": "{area}"}
    bench = Bench(endpoint=None, prefix="/p", url="http://source.example/prices", mapping=mapping)
    rows = '{"data":[{"at":"2026-01-01T00:00Z","area":"GR","v":"1"},{"at":"2026-01-01T00:00Z","area":"BG","v":2}]}'
    bench.answer = lambda _request: httpx.Response(200, text=rows, headers={"Content-Type": "application/json"})
    await bench.poll()
    assert [(made.endpoint, made.content.count(b'"time"')) for made in bench.stored] == [("/p/GR", 1), ("/p/BG", 1)]


async def test_the_key_that_helps_is_in_the_error_of_an_answer() -> None:
    bench = Bench(url="http://source.example/prices", mapping={"rows": "data", "time": "at"})
    for text, expected in {
        '{"result":[]}': "'data', but result (key: rows)",
        '{"data":[]}': "data has no rows (key: rows)",
        '{"data":[{"time":1,"value":2}]}': "there is no column 'at', but time, value (key: time)",
        "<html>Log in</html>": "HTML",
    }.items():
        bench.answer = lambda _request, text=text: httpx.Response(200, text=text)  # type: ignore[misc]
        await bench.poll()
        assert expected in str(bench.source.health.error)
    assert not bench.stored


async def test_days_without_rows_are_passed_over_with_a_mapping() -> None:
    url = "http://source.example/{date:%Y-%m-%d}.json"
    bench = Bench(url=url, days=3, mapping={"format": "json", "rows": "data/points"})
    bench.answer = lambda request: httpx.Response(
        200, text='{"data":{"points":[%s]}}' % ('{"time":"2026-01-01T00:00Z","value":1}' * ("-14" in request.url.path))
    )
    await bench.poll()
    assert len(bench.requests) == 3
    assert bench.source.health.error is None
    assert len(bench.stored) == 1


def test_the_format_of_a_mapping_is_its_own() -> None:
    with pytest.raises(ValueError, match="format: of a file with a mapping, it is a key of that"):
        HttpConfig.model_validate(POLLED | {"format": "csv", "mapping": {"delimiter": ";"}})


async def test_polls_are_conditional() -> None:
    bench = Bench()
    headers = {"ETag": '"7"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
    bench.answer = lambda _request: httpx.Response(200, text=CSV.format(1), headers=headers)
    await bench.poll()
    bench.answer = lambda _request: httpx.Response(304)
    await bench.poll()
    assert bench.requests[1].headers["if-none-match"] == '"7"'
    assert bench.requests[1].headers["if-modified-since"] == "Thu, 01 Jan 2026 00:00:00 GMT"
    assert len(bench.stored) == 1
    assert bench.source.health.successes == 2


@pytest.mark.parametrize(
    ("date", "is_sent"),
    [
        ("Thu, 01 Jan 2026 00:00:00 GMT", False),
        ("Thu, 01 Jan 2026 00:00:01 GMT", True),
        ("Fri, 02 Jan 2026 00:00:00 GMT", True),
        ("Wed, 31 Dec 2025 00:00:00 GMT", False),
        ("nonsense", False),
        (None, False),
    ],
)
async def test_last_modified_within_the_second_of_the_answer_is_no_validator(
    date: str | None, *, is_sent: bool
) -> None:
    bench = Bench()
    # A validator that is not sent back is none.
    tag = '"' + "e" * 2000 + '"'
    headers = {"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "ETag": tag} | ({"Date": date} if date else {})
    bench.answer = lambda _request: httpx.Response(200, text=CSV.format(1), headers=headers)
    for _ in range(2):
        await bench.poll()
    assert ("if-modified-since" in bench.requests[1].headers) == is_sent


async def test_the_same_body_again_is_not_stored_again() -> None:
    bench = Bench()
    await bench.poll()
    await bench.poll()
    assert len(bench.stored) == 1


async def chunks(body: bytes) -> AsyncIterator[bytes]:
    yield body


def until_the_close(body: bytes, **headers: str) -> Answer:
    """Return an answer without a length, whose body ends with the connection."""

    def answer(_request: httpx.Request) -> httpx.Response:
        response = httpx.Response(200, content=chunks(body), headers=headers)
        del response.headers["transfer-encoding"]
        return response

    return answer


async def test_a_table_delimited_by_the_close_is_complete_when_its_last_line_is() -> None:
    bench = Bench()
    bench.answer = until_the_close((CSV.format(1) + "2026-01-01T01:00:00Z,25").encode(), etag='"1"')
    await bench.poll()
    assert bench.stored == []
    assert "it may be incomplete" in str(bench.source.health.error)
    for end in ("\n", "\r\n"):
        bench.answer = until_the_close((CSV.format(1) + f"2026-01-01T01:00:00Z,255{end}").encode(), etag='"1"')
        await bench.poll()
        assert bench.source.health.error is None
    assert len(bench.stored) == 2
    # It may still have been cut, at the end of a line: the next answer must be a whole one.
    assert "if-none-match" not in bench.requests[-1].headers


async def test_a_self_delimiting_body_needs_no_final_line_end() -> None:
    table = CSV.format(1).rstrip().encode()
    for answer in (
        lambda _request: httpx.Response(200, content=table),
        lambda _request: httpx.Response(200, content=chunks(table)),
        until_the_close(gzip.compress(table), **{"content-encoding": "gzip"}),
    ):
        bench = Bench()
        bench.answer = answer
        await bench.poll()
        assert len(bench.stored) == 1
    bench = Bench(url="http://source.example/prices.json")
    bench.answer = until_the_close(b'[{"time": "2026-01-01T00:00:00Z", "value": 1}]', etag='"1"')
    for _ in range(2):
        await bench.poll()
        assert bench.source.health.error is None
    assert bench.requests[-1].headers["if-none-match"] == '"1"'


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda _r: httpx.Response(500), "status 500"),
        (lambda _r: httpx.Response(302, headers={"Location": "http://127.0.0.1/"}), "which is not followed"),
        (lambda _r: httpx.Response(200, text="<html>"), "status 200, but an HTML page instead of data"),
        (lambda _r: httpx.Response(200, text=CSV.format("x")), "line 2: 'x' is not a number"),
        (lambda _r: httpx.Response(200, text=CSV.format(1) + " " * 2000), "more than 1000 bytes"),
    ],
)
async def test_a_bad_answer_changes_nothing_and_the_next_good_one_recovers(answer: Answer, error: str) -> None:
    bench = Bench(max_bytes=1000)
    await bench.poll()
    good, bench.answer = bench.answer, answer
    await bench.poll()
    assert error in str(bench.source.health.error)
    assert not bench.source.health.status()["ok"]
    assert len(bench.stored) == 1
    bench.answer = good
    await bench.poll()
    assert bench.source.health.status()["ok"]
    assert bench.source.health.failures == 1


async def test_a_connection_that_fails_is_a_failure_of_the_poll() -> None:
    bench = Bench()

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    bench.answer = refuse
    await bench.poll()
    assert bench.source.health.error == "ConnectError: refused"


async def test_back_off_grows_with_jitter_up_to_a_minute_and_resets_after_success() -> None:
    bench = Bench(every=1.0)
    good, bench.answer = bench.answer, lambda _request: httpx.Response(503)
    for _ in range(8):
        await bench.poll()
    assert [high for _, high in bench.jitter] == [2, 4, 8, 16, 32, 60, 60, 60]
    assert all(low == 0.2 for low, _ in bench.jitter)
    bench.answer = good
    assert await bench.poll() == 1.0
    bench.answer = lambda _request: httpx.Response(503)
    await bench.poll()
    assert bench.jitter[-1][1] == 2


async def test_failures_do_not_shorten_a_long_interval() -> None:
    bench = Bench(every=3600.0)
    bench.answer = lambda _request: httpx.Response(503)
    assert await bench.poll() == 3600.0


async def test_a_body_that_could_not_be_stored_is_fetched_again_unconditionally() -> None:
    bench = Bench()
    bench.answer = lambda _request: httpx.Response(200, text=CSV.format(1), headers={"ETag": '"7"'})
    bench.refuse = StoreUnavailable("the disk is full")
    await bench.poll()
    assert bench.source.health.error == "the disk is full"
    bench.refuse = None
    await bench.poll()
    assert "if-none-match" not in bench.requests[1].headers
    assert len(bench.stored) == 1


async def test_one_url_can_update_several_endpoints_below_its_prefix() -> None:
    bench = Bench(endpoint=None, prefix="/m")
    bench.answer = lambda _request: httpx.Response(
        200, text="endpoint,time,value\n" + "".join(f"/m/{i},2026-01-01T00:00:00Z,{i}\n" for i in range(120))
    )
    await bench.poll()
    assert len(bench.stored) == 120
    bench.answer = lambda _request: httpx.Response(200, text="endpoint,time,value\n/other,2026-01-01T00:00:00Z,1\n")
    await bench.poll()
    assert bench.source.health.error == "/other is not below the prefix /m"


@pytest.mark.parametrize(
    ("url", "declared", "form"),
    [
        ("http://s.example/x", "application/json; charset=utf-8", "json"),
        ("http://s.example/x.json", "application/octet-stream", "json"),
        ("http://s.example/x.json", "text/csv", "csv"),
        ("http://s.example/x.csv?a=.json", "text/plain", "csv"),
    ],
)
async def test_the_format_is_derived_from_content_type_or_name(url: str, declared: str, form: str) -> None:
    bench = Bench(url=url)
    text = CSV.format(1) if form == "csv" else '[{"time":"2026-01-01T00:00:00Z","value":1}]'
    bench.answer = lambda _request: httpx.Response(200, content=text, headers={"Content-Type": declared})
    await bench.poll()
    assert bench.source.health.error is None
    assert len(bench.stored) == 1


async def test_a_server_that_never_answers_times_out() -> None:
    bench = Bench(timeout=0.01)

    async def stall(_request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with PollingClient(5.0, httpx.MockTransport(stall)) as client:
        await bench.source.poll(client, bench.sink)
    assert bench.source.health.error == "no complete answer in time"


async def test_units_and_local_times_are_stored_in_canonical_form() -> None:
    bench = Bench(zone="Europe/Athens", unit="kW", quantity="load", area="GR")
    bench.answer = lambda _request: httpx.Response(200, text="time,value\n2026-06-01T03:00,5000.1\n")
    await bench.poll()
    (dataset,) = bench.stored
    assert (dataset.label("unit"), dataset.label("quantity"), dataset.label("area")) == ("MW", "load", "GR")
    assert dataset.content.endswith(b'"points":[{"time":"2026-06-01T00:00:00Z","value":5.0001}]}')


async def test_redirects_are_followed_within_the_origin_and_at_most_three() -> None:
    bench = Bench(url="http://user:secret@source.example/0")

    def hop(request: httpx.Request) -> httpx.Response:
        number = int(request.url.path[1:])
        if number == 3:
            return httpx.Response(200, text=CSV.format(1))
        return httpx.Response(302, headers={"Location": f"http://source.example:80/{number + 1}"})

    bench.answer = hop
    await bench.poll()
    assert bench.source.health.error is None
    assert len(bench.stored) == 1
    assert [request.url.path for request in bench.requests] == ["/0", "/1", "/2", "/3"]
    assert {request.headers["authorization"] for request in bench.requests} == {"Basic dXNlcjpzZWNyZXQ="}
    bench.answer = lambda request: httpx.Response(302, headers={"Location": request.url.path})
    await bench.poll()
    assert bench.source.health.error == "redirected more than 3 times"
    assert len(bench.requests) == 8


@pytest.mark.parametrize(
    "location",
    ["https://source.example", "http://other.example", "http://source.example:81", "http://sub.source.example"],
)
async def test_redirects_to_another_origin_are_not_followed(location: str) -> None:
    bench = Bench()
    bench.answer = lambda _request: httpx.Response(302, headers={"Location": location})
    await bench.poll()
    host = location.partition("//")[2]
    expected = f'redirected (302) to another host, {host}, which is not followed: redirects = ["{host}"] allows it'
    assert bench.source.health.error == expected
    assert len(bench.requests) == 1


async def test_a_redirect_from_https_to_http_is_not_followed_wherever_it_leads() -> None:
    bench = Bench(url="https://source.example/", redirects=["source.example", "ftp.example"])
    for location, scheme in (("http://source.example/", "http"), ("ftp://ftp.example/", "ftp")):
        bench.answer = lambda _request, to=location: httpx.Response(302, headers={"Location": to})  # type: ignore[misc]
        await bench.poll()
        assert bench.source.health.error == f"redirected (302) from https to {scheme}; that is not followed"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("30", 30),
        ("100000000000", 900),
        ("nonsense", 2.0),
        # Of a clock that is ahead of ours, or behind it.
        ("Fri, 01 Jan 2100 00:00:00 GMT", 900),
        ("Wed, 01 Jan 2020 00:00:00 GMT", 2.0),
    ],
)
async def test_retry_after_is_honoured_up_to_a_cap(header: str, expected: float) -> None:
    bench = Bench(every=1.0)
    bench.answer = lambda _request: httpx.Response(503, headers={"Retry-After": header})
    assert await bench.poll() == expected


async def test_validators_that_cannot_be_sent_back_are_dropped() -> None:
    bench = Bench()
    headers = [(b"ETag", b'"' + b"e" * 2000 + b'"'), (b"Last-Modified", "gestern früh".encode())]
    bench.answer = lambda _request: httpx.Response(200, text=CSV.format(1), headers=headers)
    await bench.poll()
    await bench.poll()
    assert not {"if-none-match", "if-modified-since"} & bench.requests[1].headers.keys()
    assert bench.source.health.successes == 2


async def test_jitter_delays_scheduled_polls() -> None:
    bench = Bench(every=5.0, jitter=2.0)
    assert await bench.poll() == 7.0
    assert bench.jitter == [(0, 2.0)]


async def test_polls_can_be_scheduled_by_time_of_day() -> None:
    bench = Bench(at=["06:00", "18:00"], zone="Europe/Athens")
    assert await bench.poll() == 5 * 3600 + 46 * 60 + 40  # from 22:13:20 UTC to 04:00 UTC
    bench.answer = lambda _request: httpx.Response(500)
    waits = [await bench.poll() for _ in range(4)]
    assert waits == [20, 40, 60, 60]


async def test_scheduled_polls_follow_the_wall_clock() -> None:
    clock = ManualClock(wall_ms=1_767_225_600_000)  # 2026-01-01T00:00:00Z
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.advance(seconds)
        if len(slept) == 2:
            clock.step_wall(1770)  # the machine slept, or its clock was set
        if len(slept) == 4:
            raise asyncio.CancelledError

    config = HttpConfig.model_validate({**POLLED, "at": ["00:31"]})
    requests: list[float] = []

    def answer(_request: httpx.Request) -> httpx.Response:
        requests.append(clock.wall_ms() / 1000)
        return httpx.Response(200, text=CSV.format(1))

    async def sink(datasets: Sequence[Representation], *, source: str) -> None:
        pass

    source = HttpSource(config, clock, convert=FILES.convert, sleep=sleep, transport=httpx.MockTransport(answer))
    with pytest.raises(asyncio.CancelledError):
        await source.run(sink)
    assert slept == [30, 30, 30, 30]
    assert [at - 1_767_225_600 for at in requests] == [0, 1860]


async def test_a_clock_that_was_days_ahead_delays_no_scheduled_poll() -> None:
    clock = ManualClock(wall_ms=1_767_225_600_000)  # 2026-01-01T00:00:00Z
    clock.step_wall(8 * DAY_S)
    requests: list[float] = []

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)
        if requests == [8 * DAY_S]:
            clock.step_wall(-8 * DAY_S)
            requests.append(math.nan)

    def answer(_request: httpx.Request) -> httpx.Response:
        requests.append(clock.wall_ms() / 1000 - 1_767_225_600)
        if len(requests) == 4:
            raise asyncio.CancelledError
        return httpx.Response(200, text=CSV.format(1))

    async def sink(datasets: Sequence[Representation], *, source: str) -> None:
        pass

    config = HttpConfig.model_validate({**POLLED, "at": ["00:31"]})
    source = HttpSource(config, clock, convert=FILES.convert, sleep=sleep, transport=httpx.MockTransport(answer))
    with pytest.raises(asyncio.CancelledError):
        await source.run(sink)
    assert requests[2:] == [1860, DAY_S + 1860]


async def test_a_body_whose_only_validator_went_back_in_time_is_fetched_within_an_hour() -> None:
    """Servers that compare answer 304: the clock of who changed the body was wrong, before or now."""
    clock = ManualClock()
    bench = Bench(clock=clock)
    modified, body = "Fri, 02 Jan 2026 00:00:00 GMT", CSV.format(1)

    def answer(request: httpx.Request) -> httpx.Response:
        since = request.headers.get("if-modified-since")
        headers = {"Last-Modified": modified, "Date": "Sat, 03 Jan 2026 00:00:00 GMT"}
        if since and parsedate_to_datetime(modified) <= parsedate_to_datetime(since):
            return httpx.Response(304, headers=headers)
        return httpx.Response(200, text=body, headers=headers)

    bench.answer = answer
    await bench.poll()
    modified, body = "Thu, 01 Jan 2026 00:00:00 GMT", CSV.format(2)
    for _ in range(359):
        clock.advance(10)
        await bench.poll()
    assert len(bench.stored) == 1
    clock.advance(10)
    await bench.poll()
    assert len(bench.stored) == 2
    assert sum("if-modified-since" not in request.headers for request in bench.requests) == 2


async def test_endpoints_of_a_source_are_bounded_over_all_polls() -> None:
    bench = Bench(endpoint=None, prefix="/m", max_endpoints=3)

    def names(*names: str) -> Answer:
        rows = "".join(f"/m/{name},2026-01-01T00:00:00Z,1\n" for name in names)
        return lambda _request: httpx.Response(200, text="endpoint,time,value\n" + rows)

    for answer in (names("a", "b"), names("b", "c"), names("a", "d"), names("c")):
        bench.answer = answer
        await bench.poll()
    assert {one.endpoint for one in bench.stored} == {"/m/a", "/m/b", "/m/c"}
    assert bench.source.health.failures == 1


async def test_a_large_body_is_parsed_without_blocking_the_event_loop() -> None:
    bench = Bench(endpoint=None, prefix="/m")
    rows = "".join(f"/m/{n % 100},{series.iso_seconds(n // 100 * 3600)},1\n" for n in range(20_000))
    bench.answer = lambda _request: httpx.Response(200, text="endpoint,time,value\n" + rows)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await bench.poll()
    task.cancel()
    assert len(bench.stored) == 100
    assert turns > 20


NOW = datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp()


def after(text: str, times: list[str], zone: str = "Europe/Athens") -> str:
    now = datetime.fromisoformat(text).timestamp()
    return datetime.fromtimestamp(next_time(times, zone, now), UTC).isoformat()


@pytest.mark.parametrize(
    ("now", "times", "expected"),
    [
        ("2026-06-01T02:59:59Z", ["06:00", "13:30"], "2026-06-01T03:00:00+00:00"),
        ("2026-06-01T03:00:00Z", ["06:00", "13:30"], "2026-06-01T10:30:00+00:00"),
        ("2026-06-01T10:30:00Z", ["13:30", "06:00"], "2026-06-02T03:00:00+00:00"),
        ("2026-06-01T21:30:00Z", ["00:15"], "2026-06-02T21:15:00+00:00"),
        ("2026-12-31T22:30:00Z", ["00:15"], "2027-01-01T22:15:00+00:00"),
        # The clocks pass over 03:30, and show it twice.
        ("2026-03-28T22:30:00Z", ["03:30"], "2026-03-29T01:30:00+00:00"),
        ("2026-10-24T23:30:00Z", ["03:30"], "2026-10-25T00:30:00+00:00"),
        ("2026-10-25T00:30:00Z", ["03:30"], "2026-10-26T01:30:00+00:00"),
    ],
)
def test_the_next_time_of_day_is_in_the_zone(now: str, times: list[str], expected: str) -> None:
    assert after(now, times) == expected


@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001
    st.sampled_from(["UTC", "Europe/Athens", "America/St_Johns", "Pacific/Apia"]),
    st.integers(0, 23),
    st.integers(0, 59),
)
def test_the_next_time_is_within_a_day_and_has_the_local_time(at: datetime, zone: str, hour: int, minute: int) -> None:
    now = at.replace(tzinfo=UTC).timestamp()
    found = next_time([f"{hour:02}:{minute:02}"], zone, now)
    assert 0 < found - now <= timedelta(hours=26).total_seconds()
    shown = datetime.fromtimestamp(found, UTC).astimezone(ZoneInfo(zone))
    late = (shown.hour * 60 + shown.minute - hour * 60 - minute) % 1440
    assert (
        late == 0
        or shown.utcoffset() != (shown - timedelta(hours=2)).astimezone(UTC).astimezone(ZoneInfo(zone)).utcoffset()
    )


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("120", 120),
        (" 0 ", 0),
        ("Mon, 01 Jun 2026 12:00:30 GMT", 30),
        ("Mon, 01 Jun 2026 11:00:00 GMT", 0),
        ("soon", 0),
        ("-5", 0),
        ("1e9", 0),
        ("٣", 0),
        ("Mon, 99 Jun 2026 12:00:30 GMT", 0),
        ("", 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str, expected: float) -> None:
    assert retry_after_s(header, NOW) == expected
