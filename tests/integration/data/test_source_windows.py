"""Days of an HTTP source, each with a request of its own: windows, and backfills that resume."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from diem.process.clock import ManualClock
from services.data.sources.config import load
from services.data.sources.trial import try_sources
from services.data.store.store import Store
from tests.integration.data.process import serving
from tests.integration.data.source_bench import Bench
from tests.support.patience import PATIENCE_S
from tests.support.publisher import Publisher, Reply, Sent

TODAY = date(2026, 3, 29)
"""In Athens, half an hour after midnight; in UTC it is the day before."""
DAILY = 'zone = "Europe/Athens"\nevery = 3600.0\n'
PATH = "/{date:%Y%m%d}.csv"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(f"sqlite:///{tmp_path}/data.db", clock=ManualClock(wall_ms=1_774_737_000_000))
    async with opened.serving():
        yield opened


def day_of(sent: Sent) -> date:
    return date.fromisoformat(sent.path[1:9])


def days(publisher: Publisher) -> list[int]:
    """Return the days before today of the requests so far, and forget these."""
    found = [(TODAY - day_of(sent)).days for sent in publisher.requests]
    publisher.requests.clear()
    return found


def table(day: date, *values: float) -> Reply:
    """Return the table of a day: from 06:00 on, a value every six hours."""
    rows = [f"{day}T{6 * (n + 1):02}:00,{value}" for n, value in enumerate(values)]
    return Reply("\n".join(["time,value", *rows, ""]))


def conditional(answer: Callable[[date], Reply]) -> Callable[[Sent], Reply]:
    def answered(sent: Sent) -> Reply:
        reply = answer(day_of(sent))
        tag = f'"{hash(reply.body)}"'
        return Reply(status=304) if sent.headers.get("if-none-match") == tag else reply._replace(headers={"ETag": tag})

    return answered


def ago(count: int) -> date:
    return TODAY - timedelta(days=count)


async def test_the_last_days_are_one_series(tmp_path: Path, publisher: Publisher, store: Store) -> None:
    tables = {ago(0): table(ago(0), 0), ago(1): table(ago(1), 1, 1.5), ago(2): table(ago(2), 2)}
    publisher.answer = conditional(tables.__getitem__)
    bench = Bench(tmp_path, publisher, DAILY + "days = 3", PATH, store)
    assert await bench.poll() is None
    assert days(publisher) == [2, 1, 0]
    whole = {"2026-03-27T04:00": 2, "2026-03-28T04:00": 1, "2026-03-28T10:00": 1.5, "2026-03-29T03:00": 0}
    assert bench.values() == whole
    assert len(bench.stored) == 1
    # Each has its own conditional state: nothing is new.
    assert await bench.poll() is None
    assert days(publisher) == [2, 1, 0]
    assert len(bench.stored) == 1
    # Revisions replace their parts.
    tables[ago(1)] = table(ago(1), 7)
    tables[ago(0)] = table(ago(0), 0, 8)
    assert await bench.poll() is None
    revised = {"2026-03-27T04:00": 2, "2026-03-28T04:00": 7, "2026-03-28T10:00": 1.5, "2026-03-29T03:00": 0}
    assert bench.values() == revised | {"2026-03-29T09:00": 8}


async def test_days_that_leave_the_window_are_dropped(tmp_path: Path, publisher: Publisher, store: Store) -> None:
    publisher.answer = conditional(lambda day: table(day, day.day))
    bench = Bench(tmp_path, publisher, DAILY + "days = 2", PATH, store)
    await bench.poll()
    bench.clock.step_wall(86_400)
    assert await bench.poll() is None
    assert bench.values() == {"2026-03-29T03:00": 29, "2026-03-30T03:00": 30}


async def test_dates_before_the_day_move_what_is_dropped(tmp_path: Path, publisher: Publisher, store: Store) -> None:
    publisher.answer = lambda sent: table(day_of(sent), day_of(sent).day)
    bench = Bench(tmp_path, publisher, DAILY + "days = 2", "/{date-1d:%Y%m%d}.csv", store)
    await bench.poll()
    assert bench.values() == {"2026-03-27T04:00": 27, "2026-03-28T04:00": 28}


async def test_a_new_process_continues_what_is_stored(tmp_path: Path, publisher: Publisher, store: Store) -> None:
    publisher.answer = lambda sent: table(day_of(sent), 1)
    bench = Bench(tmp_path, publisher, DAILY + "days = 2", PATH, store)
    await bench.poll()
    bench.restart()
    publisher.answer = lambda sent: table(day_of(sent), 5) if day_of(sent) == TODAY else Reply(status=404)
    assert await bench.poll() is None
    assert bench.values() == {"2026-03-28T04:00": 1, "2026-03-29T03:00": 5}


async def test_days_with_the_same_request_are_requested_once(tmp_path: Path, publisher: Publisher) -> None:
    publisher.answer = lambda _sent: table(TODAY, 1)
    bench = Bench(tmp_path, publisher, DAILY + "days = 60", "/{date:%Y-%m}.csv")
    assert await bench.poll() is None
    assert [sent.path for sent in publisher.requests] == ["/2026-01.csv", "/2026-02.csv", "/2026-03.csv"]


async def test_answers_of_later_days_prevail_where_days_overlap(
    tmp_path: Path, publisher: Publisher, store: Store
) -> None:
    """Forecasts: the answer of a day has values of the next one, too."""

    def forecast(sent: Sent) -> Reply:
        day = day_of(sent)
        value = revised.get(day, day.day)
        reply = Reply("".join([str(table(day, value).body), *str(table(day + timedelta(1), value).body)[11:]]))
        return conditional(lambda _day: reply)(sent)

    revised: dict[date, int] = {}
    publisher.answer = forecast
    bench = Bench(tmp_path, publisher, DAILY + f"days = 2\nsince = {ago(4)}\nper_minute = 6000", PATH, store)
    await bench.run(7200)
    expected = {ago(count): ago(count).day for count in range(4, -2, -1)} | {ago(-1): TODAY.day}
    assert list(bench.values().values()) == list(expected.values())
    revised[ago(1)] = 99
    await bench.poll()
    assert list(bench.values().values()) == [25, 26, 27, 99, 29, 29]


@pytest.mark.parametrize("absent", [Reply(status=404), Reply("time,value\n"), Reply(""), Reply(status=204)])
async def test_days_may_be_absent_unless_all_are(tmp_path: Path, publisher: Publisher, absent: Reply) -> None:
    publisher.answer = lambda sent: absent if day_of(sent) == TODAY else table(day_of(sent), 1)
    bench = Bench(tmp_path, publisher, DAILY + "days = 3", PATH)
    assert await bench.poll() is None
    assert len(bench.values()) == 2
    publisher.answer = lambda _sent: absent
    assert str(await bench.poll()).endswith(", for each of 3 days")


async def test_days_with_invalid_data_are_all_named_and_affect_no_other(tmp_path: Path, publisher: Publisher) -> None:
    publisher.answer = lambda sent: table(day_of(sent), 1) if day_of(sent) == ago(1) else Reply("time,value\nx,y\n")
    bench = Bench(tmp_path, publisher, DAILY + "days = 3", PATH)
    error = await bench.poll()
    assert str(error).startswith("2026-03-27: line 2: ")
    assert str(error).endswith(" (and 1 more)")
    assert [text[:12] for text in bench.source.health.errors] == ["2026-03-27: ", "2026-03-29: "]
    assert bench.values() == {"2026-03-28T04:00": 1}
    # They are requested again until they are valid.
    publisher.answer = lambda sent: table(day_of(sent), 2)
    assert await bench.poll() is None
    assert len(bench.values()) == 3


async def test_another_failure_ends_the_poll_and_keeps_the_days_before(tmp_path: Path, publisher: Publisher) -> None:
    publisher.answer = lambda sent: table(day_of(sent), 1) if day_of(sent) == ago(2) else Reply(status=503)
    bench = Bench(tmp_path, publisher, DAILY + "days = 3", PATH)
    assert str(await bench.poll()).startswith("status 503")
    assert days(publisher) == [2, 1]
    assert len(bench.values()) == 1


async def test_sources_check_requests_the_last_days_alone(tmp_path: Path, publisher: Publisher) -> None:
    publisher.answer = lambda sent: table(day_of(sent), 1)
    bench = Bench(tmp_path, publisher, DAILY + 'since = "2020-01-01"\ndays = 30\nper_minute = 6000', PATH)
    (trial,) = await try_sources(load(bench.file), bench.clock)
    assert (trial.error, trial.points) == (None, 3)
    assert days(publisher) == [2, 1, 0]


# Backfills

SINCE = DAILY + f"since = {ago(25)}\ndays = 2\n"


async def test_a_backfill_follows_the_first_poll_oldest_first(
    tmp_path: Path, publisher: Publisher, store: Store
) -> None:
    publisher.answer = conditional(lambda day: table(day, day.day))
    bench = Bench(tmp_path, publisher, SINCE, PATH, store)
    await bench.run(3000)
    assert days(publisher) == [1, 0, *range(25, 1, -1)]
    assert len(bench.values()) == 26
    # Two polled days, and three groups of ten at most.
    assert len(bench.stored) == 4
    assert bench.source.health.status()["progress"] == f"backfilled since {ago(25)}"
    # A day that leaves the window is requested once more.
    bench.clock.step_wall(86_400)
    await bench.run(3000)
    assert days(publisher) == [0, -1, 1]


async def test_a_backfill_resumes_after_the_last_stored_days(
    tmp_path: Path, publisher: Publisher, store: Store
) -> None:
    publisher.answer = lambda sent: Reply(status=500) if day_of(sent) == ago(10) else table(day_of(sent), 1)
    bench = Bench(tmp_path, publisher, SINCE, PATH, store)
    await bench.run(300)
    assert days(publisher) == [1, 0, *range(25, 9, -1)]
    assert bench.source.health.status()["progress"] == f"backfill: 10 of 24 days since {ago(25)}"
    assert str(bench.source.health.error).startswith("status 500")
    publisher.answer = lambda sent: table(day_of(sent), 1)
    bench.restart()
    await bench.run(3000)
    assert days(publisher) == [1, 0, *range(15, 1, -1)]
    assert len(bench.values()) == 26


async def test_days_missed_while_the_service_was_down_are_caught_up(
    tmp_path: Path, publisher: Publisher, store: Store
) -> None:
    publisher.answer = lambda sent: table(day_of(sent), 1)
    bench = Bench(tmp_path, publisher, SINCE, PATH, store)
    await bench.run(3000)
    days(publisher)
    bench.clock.step_wall(5 * 86_400)
    bench.restart()
    await bench.run(3000)
    assert days(publisher) == [-4, -5, 1, 0, -1, -2, -3]
    assert len(bench.values()) == 31


async def test_a_backfill_passes_over_days_without_data_and_names_invalid_ones(
    tmp_path: Path, publisher: Publisher, store: Store
) -> None:
    answers = {ago(20): Reply(status=404), ago(19): Reply("time,value\n"), ago(18): Reply("time,value\nx,y\n")}
    publisher.answer = lambda sent: answers.get(day_of(sent), table(day_of(sent), 1))
    bench = Bench(tmp_path, publisher, SINCE, PATH, store)
    await bench.run(3000)
    assert len(bench.values()) == 23
    expected = f"backfilled since {ago(25)}, without {ago(18)} (invalid)"
    assert bench.source.health.status()["progress"] == expected
    days(publisher)
    bench.restart()
    await bench.run(300)
    assert days(publisher) == [1, 0]
    assert bench.source.health.status()["progress"] == expected


async def test_a_mark_of_another_store_or_request_does_not_count(
    tmp_path: Path, publisher: Publisher, store: Store
) -> None:
    publisher.answer = lambda sent: table(day_of(sent), 1)
    bench = Bench(tmp_path, publisher, SINCE, PATH, store)
    await bench.run(3000)
    file = tmp_path / "sources" / "p.json"
    mark = json.loads(file.read_text())
    assert file.stat().st_mode & 0o777 == 0o600
    assert mark["before"] == str(ago(1))
    others: list[object] = [mark | {"store": "another"}, mark | {"request": ""}, {}, [1], mark | {"before": "soon"}]
    for wrong in others:
        days(publisher)
        file.write_text(json.dumps(wrong))
        bench.restart()
        await bench.run(3000)
        assert days(publisher) == [1, 0, *range(25, 1, -1)]


async def test_a_backfill_waits_as_the_server_says(tmp_path: Path, publisher: Publisher, store: Store) -> None:
    limited = Reply(status=429, headers={"Retry-After": "600"})
    publisher.answer = lambda sent: limited if day_of(sent) == ago(20) else table(day_of(sent), 1)
    bench = Bench(tmp_path, publisher, SINCE.replace("3600.0", "60.0"), PATH, store)
    await bench.run(500)
    assert days(publisher) == [1, 0, *range(25, 19, -1)]
    assert bench.slept[-1] == 600


async def test_a_backfill_pauses_for_the_next_poll(tmp_path: Path, publisher: Publisher, store: Store) -> None:
    publisher.answer = lambda sent: table(day_of(sent), 1)
    bench = Bench(tmp_path, publisher, SINCE + "per_minute = 1\n", PATH, store)
    bench.file.write_text(bench.file.read_text().replace("every = 3600.0", "every = 300.0"))
    bench.restart()
    await bench.run(1500)
    # Groups are not interrupted.
    assert days(publisher)[:14] == [1, 0, *range(25, 15, -1), 1, 0]


async def test_the_service_backfills_and_keeps_its_mark_without_secrets(tmp_path: Path, publisher: Publisher) -> None:
    secret = tmp_path / "key"
    secret.write_text("s3cr3t")
    secret.chmod(0o600)
    first = datetime.now(UTC).date() - timedelta(days=15)
    publisher.answer = lambda sent: table(day_of(sent), 1)
    config = f"""
        [[source]]
        type = "http"
        name = "p"
        url = "{publisher.url}{PATH}"
        query = {{ token = {{ file = "{secret}" }} }}
        endpoint = "/p"
        unit = "MW"
        resolution = "PT1H"
        since = {first}
        per_minute = 6000
        """
    async with serving(tmp_path / "state", config=config) as process:
        async with httpx.AsyncClient() as http, asyncio.timeout(PATIENCE_S):
            source: dict[str, object] = {}
            while source.get("progress") != f"backfilled since {first}":
                status = (await http.get(f"{process.internal}/status", headers=process.shared)).json()
                (source,) = status["sources"]
                await asyncio.sleep(0.02)
            points = (await http.get(f"{process.url}/v1/data/p")).json()["points"]
        assert len(points) == 16
        assert "s3cr3t" not in f"{process.log} {source}"
    assert {sent.query["token"] for sent in publisher.requests} == {"s3cr3t"}
    state = {file.name: file.read_bytes() for file in (tmp_path / "state").rglob("*") if file.is_file()}
    assert json.loads(state["p.json"])["before"] == f"{first + timedelta(days=15)}"
    assert not any(b"s3cr3t" in content for content in state.values())
