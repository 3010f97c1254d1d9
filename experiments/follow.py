"""``make bench-follow``: whether following counts each event once despite kills, and how soon a change is in a plan.

Sessions of clients are recorded in a topic of a real Kafka. ``diem pipeline run --follow`` reads it on a standalone
cluster of this machine with two workers. An executor, the driver's JVM and the command itself are killed in turn
(SIGKILL), while a batch is being written if there is one; what has ended is started again. Then a third of the
endpoints get each other's subscribers, and ``diem plan`` plans from each new statistics, until the mean fan-out of the
changed clients is near that of a plan made from them alone. In the end the command is killed and started once more.
A run without ``--follow``, in local mode and into an empty warehouse, reads the same topic: the rows of both tables and
the statistics of the last window must be the same, every float to the bit.

``MINUTES`` is the time of the kills, ``RATE`` the events a second, ``WINDOW`` the seconds of a window, ``EVERY`` those
between batches.
"""

import asyncio
import contextlib
import heapq
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark
from aiokafka import AIOKafkaProducer

from deploy.kafka import java
from diem.kafka.client import silence_library_log
from diem.kafka.config import KafkaOptions
from diem.kafka.topics import ensure_traffic
from diem.protocol.traffic import TrafficEvent, Type, encode
from diem.protocol.update import iso
from learning.costs import DEFAULT
from learning.jobs.checkpoint import last_committed, read_offsets
from learning.jobs.delta_table import committed_files
from learning.jobs.sources import TopicSource
from learning.jobs.traffic_topic import kafka_source, unread_records
from learning.jobs.warehouse import BadStatistics, Warehouse, all_statistics, read_window
from learning.placement.backend import Backend
from learning.placement.baselines import murmur2
from learning.placement.blocks import Parts
from learning.placement.objective import fan_out, server_of_endpoint
from learning.placement.options import MARGIN, PlanOptions
from learning.placement.planner import plan
from metadata.plans.plan import decode
from tests.bench.report import Report
from tests.load.bench import Goal, exit_code, write
from tests.load.system import System
from tests.support.commandline import heed_interrupts, parser
from tests.support.delta import being_written
from tests.support.instances import Population, Recipe, exchanged, population
from tests.support.local_cluster import LocalCluster
from tests.support.patience import PATIENCE_S, until
from tests.support.size import SIZE, RunSize, sized
from tests.support.spark_cluster import Cluster, spark_cluster
from tests.support.traffic import Life

MINUTES: Final = float(os.environ.get("MINUTES", sized(60, 1, 0.1)))
RATE: Final = int(os.environ.get("RATE", sized(1000, 300, 100)))
WINDOW: Final = int(os.environ.get("WINDOW", sized(120, 30, 10)))
EVERY: Final = float(os.environ.get("EVERY", sized(60, 5, 1)))
KILLS: Final = ("executor", "jvm", "command") * sized(3, 1, 1)
RECIPE: Final = sized(
    Recipe(1000, 20_000, 6, communities=60, seed=1),
    Recipe(300, 5_000, 6, communities=20, seed=1),
    Recipe(60, 500, 4, communities=5, seed=1),
)
CHANGED: Final = 1 / 3
SESSION_S: Final = sized(60.0, 20.0, 5.0)
EVENTS_OF_SESSION: Final = 4
EDGES: Final = 4
TICK_S: Final = 0.1
NAMED: Final = 200
"""Endpoints in an event of counts."""
REPEATED, SPACED, BAD = 0.01, 0.002, 0.001
"""Shares of the events that are sent twice, of lines that only Python parses, and of lines that are no events."""
SERVERS: Final = sized(8, 4, 2)
NEAR: Final = 1.1
"""Fan-out of the changed clients, as a multiple of that of a plan from them alone."""
GOAL_S: Final = 300.0
LIMIT_S: Final = 900.0
WITHIN_S: Final = 4 * PATIENCE_S + EVERY
"""Longest wait for a batch."""
_BATCH: Final = re.compile(r"batch \d+: ([\d,]+) lines in ([\d.]+) s")


class Recorder:
    """Clients that come and go, recorded in the topic at about :data:`RATE` events a second; every record is there."""

    def __init__(self, options: KafkaOptions, interests: Population) -> None:
        now = _now_ms()
        self.interests = interests
        """Of clients that come from now on."""
        self.records = 0
        self._options = options
        self._lives = [Life(f"websocket-{number}", number, now, now) for number in range(1, EDGES + 1)]
        self._ends: list[tuple[float, int, Life, tuple[str, ...]]] = []
        self._sessions, self._due, self._chance = 0, 0.0, random.Random(1)
        self._counted = {life.edge: now for life in self._lives}
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Record until stopped."""
        async with self._producing() as send:
            last = monotonic()
            while not self._stopping.is_set():
                await asyncio.sleep(TICK_S)
                last, before = monotonic(), last
                await send([*self._begun((last - before) * RATE), *self._ended(last), *self._counts()])

    def stop(self) -> None:
        """End ``run``."""
        self._stopping.set()

    async def live_on(self) -> None:
        """Record signs of life, one after another: if one of them is committed, those before it are, too."""
        async with self._producing() as send:
            while True:
                await send([self._lives[0].counts(_now_ms() - 1, _now_ms())])
                await asyncio.sleep(1)

    @contextlib.asynccontextmanager
    async def _producing(self) -> AsyncIterator[Callable[[list[TrafficEvent]], Any]]:
        producer = AIOKafkaProducer(**self._options.client_arguments())
        await producer.start()

        async def send(events: list[TrafficEvent]) -> None:
            lines = [line for event in events for line in self._lines(event)]
            topic = self._options.names.traffic
            await asyncio.gather(*[await producer.send(topic, line) for line in lines])
            self.records += len(lines)

        try:
            yield send
        finally:
            await producer.stop()

    def _lines(self, event: TrafficEvent) -> Iterator[bytes]:
        line = encode(event)
        yield line.replace(b'":', b'": ') if self._chance.random() < SPACED else line
        if self._chance.random() < REPEATED:
            yield line
        if self._chance.random() < BAD:
            yield line[:-2]

    def _begun(self, events: float) -> Iterator[TrafficEvent]:
        self._due += events / EVENTS_OF_SESSION
        people = self.interests
        while self._due >= 1:
            self._due -= 1
            self._sessions += 1
            number, life = self._sessions, self._chance.choice(self._lives)
            first, last = people.client.searchsorted([(who := self._chance.randrange(people.clients)), who + 1])
            names = tuple(f"/endpoint-{each}" for each in people.endpoint[first:last][:100].tolist())
            yield life.event(Type.CONNECT, _now_ms(), number, number)
            yield life.event(Type.SUBSCRIBE, _now_ms(), number, number, *names)
            until_s = monotonic() + self._chance.expovariate(1 / SESSION_S)
            heapq.heappush(self._ends, (until_s, number, life, names))

    def _ended(self, now: float) -> Iterator[TrafficEvent]:
        while self._ends and self._ends[0][0] < now:
            _, number, life, names = heapq.heappop(self._ends)
            yield life.event(Type.UNSUBSCRIBE, _now_ms(), number, number, names[0])
            yield life.event(Type.DISCONNECT, _now_ms(), number, number)

    def _counts(self) -> Iterator[TrafficEvent]:
        for life in self._lives:
            since, now = self._counted[life.edge], _now_ms()
            if now // 60_000 > since // 60_000:
                self._counted[life.edge] = now
                taken = [int(rate * (now - since) / 1000) for rate in self.interests.rate.tolist()]
                for first in range(0, len(taken), NAMED):
                    part = enumerate(taken[first : first + NAMED], first)
                    yield life.counts(since, now, **{f"endpoint-{each}": (count, 2 * count) for each, count in part})


class Follower:
    """The command with ``--follow``: started again whenever it ends, until stopped."""

    def __init__(self, command: Sequence[str], cluster: Cluster, warehouse: Warehouse, source: TopicSource) -> None:
        self._command, self._cluster = command, cluster
        self.warehouse, self.checkpoint = warehouse, warehouse.checkpoint(source.name)
        self._sink = warehouse.sink(source.name)
        self._log = warehouse.root.with_suffix(".log")
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self.code: int | None = None
        """Exit code after the stop."""
        self.kills = Counter[str]()
        self.in_batch = 0
        """Kills while a batch was being written."""
        self.ends = 0
        """Ends by themselves, before the stop."""
        self._expected = False

    async def run(self) -> None:
        """Run the command again and again."""
        while self.code is None:
            with self._log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(*self._command, stdout=log, stderr=log)
            code = await self._process.wait()
            if self._stopping:
                self.code = code
            elif not self._expected:
                self.ends += 1
            self._expected = False

    async def kill(self, what: str, *, in_batch: bool = True) -> None:
        """Kill an executor, the driver's JVM or the command, while a batch is written, if in time, or while none is."""
        with contextlib.suppress(TimeoutError):
            await until(lambda: being_written(self._sink) is in_batch, 2 * EVERY + 10)
            self.in_batch += in_batch
        self.kills[what] += 1
        assert self._process is not None
        jvms = _jvms(self._process.pid)
        match what:
            case "executor":
                self._cluster.executors()[0].kill()
            case "jvm":
                self._expected = True
                jvms[0].kill()
            case _:
                self._expected = True
                self._process.kill()
        if what != "executor":
            # Spark's JVM ends with the command.
            await asyncio.to_thread(psutil.wait_procs, jvms, PATIENCE_S)

    async def next_batch(self) -> None:
        """Wait until another batch is committed."""
        before = last_committed(self.checkpoint)
        await until(lambda: last_committed(self.checkpoint) != before, WITHIN_S, 0.2)

    async def statistics_since(self, end: str) -> str:
        """Wait for statistics of a window with a later end (ISO 8601); return its end."""
        within = WITHIN_S + LIMIT_S
        return await until(lambda: max((to for to in self._window_ends() if to > end), default=""), within, 0.2)

    def _window_ends(self) -> list[str]:
        # While statistics are replaced, a folder may be gone.
        with contextlib.suppress(BadStatistics):
            return [str(read_window(each)["to"]) for each in all_statistics(self.warehouse)]
        return []

    async def stop(self) -> None:
        """Interrupt the command, and wait for its end."""
        self._stopping = True
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        # It may be computing the statistics of an hour.
        await until(lambda: self.code is not None, WITHIN_S)

    def batches(self) -> list[tuple[int, float]]:
        """Return the lines and the seconds of each batch, as the command has printed them."""
        found = _BATCH.findall(self._log.read_text())
        return [(int(lines.replace(",", "")), float(seconds)) for lines, seconds in found]

    def end_all(self) -> None:
        """Kill what runs."""
        self._stopping = True
        if self._process is not None and self._process.returncode is None:
            for each in [*_jvms(self._process.pid), self._process]:
                each.kill()


class Judge:
    """The fan-out of clients with other interests, by plans."""

    def __init__(self, changed: Population) -> None:
        self._instance = changed.instance()
        self._backend = Backend(self._instance.blocks(), len(self._instance.endpoints))
        made = plan(self._instance, PlanOptions((SERVERS,), margin=MARGIN, current_partitions=12), DEFAULT)
        self.best = self._fan_out(made.placement, made.partitions)
        """That of a plan from them alone."""

    def of(self, file: Path) -> float:
        """Return their mean fan-out by the plan in a file."""
        made = decode(file.read_bytes())
        placement = murmur2(self._instance.endpoints, made.partitions)
        for number, name in enumerate(self._instance.endpoints):
            placement[number] = made.homes.get(name, placement[number])
        return self._fan_out(placement, made.partitions)

    def _fan_out(self, placement: Parts, partitions: int) -> float:
        return float(fan_out(self._backend, server_of_endpoint(placement, partitions, SERVERS), SERVERS).mean)


class Bench:
    """One run, in a folder."""

    def __init__(self, folder: Path, report: Report) -> None:
        self._folder, self._report = folder, report
        self._followed, self._batch = (Warehouse(folder / name) for name in ("followed", "batch"))
        self._loads = list[float]()

    async def run(self) -> tuple[dict[str, Any], list[Goal]]:
        """Return figures and goals."""
        silence_library_log()
        async with contextlib.AsyncExitStack() as stack:
            self._report.step("Kafka, Spark's cluster, and diem up with two servers")
            broker = await stack.enter_async_context(LocalCluster(self._folder / "kafka"))
            spark = self._folder / "spark"
            spark.mkdir()
            cluster = stack.enter_context(spark_cluster(spark, java.find(), Path(pyspark.__path__[0])))
            self._address = ("--bootstrap-servers", broker.bootstrap_servers)
            options = ["--servers", "2", "--traffic", "off", *self._address]
            self._system = await stack.enter_async_context(System("z-client", self._folder, options))
            self._kafka = KafkaOptions(broker.bootstrap_servers, replication=1)
            await ensure_traffic(self._kafka)
            self._source = await kafka_source(self._kafka)
            following = ("--follow", "--every", f"{EVERY:g}", "--window", f"{WINDOW}s")
            command = self._pipeline(self._followed, *following, *cluster.settings().arguments())
            self._follower = Follower(command, cluster, self._followed, self._source)
            stack.callback(self._follower.end_all)
            figures = await self._follow()
            self._report.step(f"a run without --follow, of {self._recorder.records:,} records")
            last = read_window(all_statistics(self._followed)[-1])
            window = ("--from", str(last["from"]), "--to", str(last["to"]))
            await self._to_end(*self._pipeline(self._batch, *window, "--master", "local[2]"))
            figures |= await asyncio.to_thread(self._compare)
        goals = [
            Goal("rows of the tables that differ", "rows", 0, figures["rows_that_differ"]),
            Goal("tables of the statistics that differ", "tables", 0, len(figures["statistics_that_differ"])),
            Goal("ends without a kill", "ends", 0, self._follower.ends),
            Goal("from a change to a plan with it", "s", GOAL_S, figures["change_in_a_plan_s"]),
        ]
        return figures, goals

    async def _follow(self) -> dict[str, Any]:
        """Record, follow, kill and plan; return figures."""
        before = population(RECIPE)
        self._recorder = Recorder(self._kafka, before)
        async with asyncio.TaskGroup() as tasks:
            recording = tasks.create_task(self._recorder.run())
            tasks.create_task(self._follower.run())
            watching = tasks.create_task(self._watch_load())
            began = monotonic()
            await self._kill()
            found = await self._change(exchanged(before, CHANGED))
            self._report.step("the last kill")
            self._recorder.stop()
            await recording
            seconds, end = monotonic() - began, iso(_now_ms())
            living = tasks.create_task(self._recorder.live_on())
            # Statistics are computed after the first batch of a command, which is to have all records.
            await self._follower.kill("command", in_batch=False)
            await self._follower.statistics_since(end)
            living.cancel()
            while await self._unread(self._followed):
                await asyncio.sleep(TICK_S)
            await self._follower.stop()
            watching.cancel()
        batches = self._follower.batches()
        return {
            "minutes": round(seconds / 60, 1),
            "records": self._recorder.records,
            "records_per_s": round(self._recorder.records / seconds, 1),
            "kills": dict(self._follower.kills),
            "kills_in_a_batch": self._follower.in_batch,
            "batches": len(batches),
            "seconds_of_a_batch": round(statistics.median(took for _, took in batches), 2),
            "windows": len(all_statistics(self._followed)),
            "exit_code": self._follower.code,
            "machine_load": round(statistics.fmean(self._loads), 1),
            **found,
        }

    async def _kill(self) -> None:
        begin, gap = monotonic(), MINUTES * 60 / len(KILLS)
        await self._follower.next_batch()
        for number, what in enumerate(KILLS, 1):
            await asyncio.sleep(begin + gap * number - monotonic())
            self._report.step(f"kill {number} of {len(KILLS)}: {what}")
            await self._follower.kill(what)
            await self._follower.next_batch()

    async def _change(self, changed: Population) -> dict[str, Any]:
        """Change the interests, and plan until a plan has the change."""
        self._report.step("a change")
        judge = await asyncio.to_thread(Judge, changed)
        end = await self._follower.statistics_since("")
        old = judge.of(await self._plan())
        self._recorder.interests, began = changed, monotonic()
        plans = list[dict[str, float]]()
        while monotonic() < began + LIMIT_S:
            end = await self._follower.statistics_since(end)
            now = judge.of(await self._plan())
            plans.append({"after_s": round(monotonic() - began, 1), "fan_out": round(now, 3)})
            print(f"{plans[-1]}, of the change alone {judge.best:.3f}", flush=True)
            if now <= NEAR * judge.best or SIZE is RunSize.SMOKE:
                break
        reached = plans[-1]["fan_out"] <= NEAR * judge.best
        return {
            "change_in_a_plan_s": plans[-1]["after_s"] if reached else None,
            "plans": plans,
            "fan_out": {"before": round(old, 3), "of_the_change_alone": round(judge.best, 3)},
        }

    async def _plan(self) -> Path:
        """Plan as an operator does; return the plan's file."""
        file = self._folder / "plan.json"
        places = ("--state-dir", str(self._system.state), "--warehouse", str(self._followed.root), "--out", str(file))
        await self._to_end(*_diem("plan", "--servers", str(SERVERS), "--no-submit", "--anyway", *places))
        return file

    def _pipeline(self, warehouse: Warehouse, *options: str) -> list[str]:
        places = ("--state-dir", str(self._folder / "state-of-pipeline"), "--warehouse", str(warehouse.root))
        return _diem("pipeline", "run", "--source", "kafka", *self._address, *places, *options)

    async def _to_end(self, *command: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, f"{' '.join(command)}:\n{output.decode()}"

    async def _unread(self, warehouse: Warehouse) -> int:
        offsets = read_offsets(warehouse.checkpoint(self._source.name)).get(self._source.topic, {})
        return (await unread_records(self._kafka, offsets)).unread

    async def _watch_load(self) -> None:
        while True:
            self._loads.append(os.getloadavg()[0])
            await asyncio.sleep(5)

    def _compare(self) -> dict[str, Any]:
        """Compare rows and statistics with those of the run without ``--follow``."""
        one, other = (_rows(each.sink(self._source.name)) for each in (self._followed, self._batch))
        folder, expected = (all_statistics(each)[-1] for each in (self._followed, self._batch))
        differ = [
            f"{name}.parquet"
            for name in ("endpoints", "sets", "waste")
            if not pq.read_table(folder / f"{name}.parquet").equals(pq.read_table(expected / f"{name}.parquet"))
        ]
        differ += ["window.json"] if read_window(folder) != read_window(expected) else []
        same = one.equals(other)
        return {
            "rows": one.num_rows,
            "rows_of_kinds": dict(Counter(one["kind"].to_pylist())),
            "rows_that_differ": 0 if same else max(1, abs(one.num_rows - other.num_rows)),
            "statistics_that_differ": differ,
            "last_window": read_window(folder),
        }


def _rows(sink: Path) -> pa.Table:
    """Return the rows of both tables, in an order of their own."""
    parts = []
    for file in committed_files(sink):
        part = pq.ParquetFile(file.path).read()
        for name, value in (("kind", file.kind), ("day", file.day.isoformat())):
            part = part.append_column(name, pa.array([value] * part.num_rows, pa.string()))
        parts.append(part)
    table = pa.concat_tables(parts)
    # Of repeats that arrived in the same millisecond all columns are equal.
    keys = [(name, "ascending") for name in ("id", "source", "arrived")]
    return table.take(pc.sort_indices(table, sort_keys=keys)).combine_chunks()


def _diem(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "deploy", *arguments]


def _jvms(pid: int) -> list[psutil.Process]:
    return [each for each in psutil.Process(pid).children(recursive=True) if each.name() == "java"]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser(__spec__, __doc__, report="build/bench/follow.json", quick="has a minute of kills")
    arguments.parse_args(argv)
    heed_interrupts()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder, Report(len(KILLS) + 4) as report:
        figures, goals = asyncio.run(Bench(Path(folder), report).run())
    report.goals(goals)
    shape = {"rate": RATE, "window_s": WINDOW, "every_s": EVERY}
    print(f"written: {write('follow', {**shape, **figures}, goals)}")
    return exit_code(goals)


if __name__ == "__main__":
    sys.exit(main())
