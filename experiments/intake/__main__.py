"""``make bench-intake``: a Data Service reads a Kafka topic: how fast, how soon, and what kills lose or double.

Documents of 1 KB in 12 partitions. First a topic is read from its beginning by a service on one core. Then a system of
mode single shows it to 1,000 clients: one record at a time while it is idle, and a load of half that rate. At last the
service is killed at random under load, and its broker restarted; the oracle compares every version with the topic. A
service that stores its positions apart from its data must be caught. ``--url``: of a PostgreSQL database for the kills,
instead of SQLite.
``QUICK=1``: fewer records, clients and kills.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from diem.kafka.client import silence_library_log
from experiments.intake.kills import Outcome, kill_again
from experiments.intake.rates import Displayed, Drained, display, drain
from experiments.intake.topic import PARTITIONS, TopicOrigin, started
from tests.bench.drain import own_core
from tests.bench.report import Report
from tests.load.bench import Goal, exit_code, write
from tests.support.commandline import parser
from tests.support.size import SIZE, RunSize, sized

RECORDS: Final = sized(200_000, 40_000, 600)
KEYS: Final = sized(5000, 5000, 100)
CLIENTS: Final = sized(1000, 200, 20)
LATENCIES: Final = sized(500, 100, 5)
RATE: Final = sized(10_000, 10_000, 100)
LOAD_SHARE: Final = 0.5
"""Of the rate at which the same run has read a topic alone."""
LOAD_S: Final = sized(30.0, 10.0, 1.0)
KILLS: Final = sized(100, 5, 1)
CONTROL_KILLS: Final = sized(5, 3, 1)
KILL_KEYS: Final = 500
KILL_RATE: Final = sized(400, 400, 100)


async def run(folder: Path, url: str | None, report: Report) -> tuple[Drained, Displayed, Outcome, Outcome]:
    """Measure everything with one broker."""
    silence_library_log()
    report.step("starting a broker")
    cluster = await started(folder / "kafka")
    try:
        available = os.sched_getaffinity(0)
        core, _ = own_core()
        origin = TopicOrigin(cluster, "drained", keys=KEYS, rate=0)
        await origin.create()
        report.step(f"reading {RECORDS} records")
        drained = await drain(origin, folder / "drained", RECORDS, core)
        os.sched_setaffinity(0, available)
        origin = TopicOrigin(cluster, "displayed", keys=CLIENTS, rate=0)
        await origin.create()
        # Broker, writer and clients share the machine with the system.
        rate = int(min(RATE, drained.per_s * LOAD_SHARE))
        load: dict[str, Any] = {"clients": CLIENTS, "latencies": LATENCIES, "rate": rate, "seconds": LOAD_S}
        displayed = await display(origin, folder / "displayed", report.step, **load)
        outcomes = []
        control = (sys.executable, "-m", "experiments.intake.apart")
        for name, kills, launcher in (("killed", KILLS, ()), ("apart", CONTROL_KILLS, control)):
            origin = TopicOrigin(cluster, name, keys=KILL_KEYS, rate=KILL_RATE)
            await origin.create()
            found = await kill_again(
                origin,
                folder / name,
                kills,
                lambda text, name=name: report.step(f"{name}: {text}"),  # type: ignore[misc]
                launcher=launcher,
                url=url if name == "killed" else None,
            )
            outcomes.append(found)
    finally:
        await cluster.stop()
    return drained, displayed, *outcomes  # type: ignore[return-value]


def goals(drained: Drained, displayed: Displayed, killed: Outcome, apart: Outcome) -> list[Goal]:
    """Return the goals."""
    # One kill within a second may be too few.
    is_judged = SIZE is not RunSize.SMOKE
    control = Goal("positions apart from data: records doubled or lost", "", 1, apart.faults.total, at_least=True)
    caught = [control] if is_judged else []
    return [
        Goal("records for a second of one core", "1/s", 10_000, drained.per_core_s, at_least=True),
        Goal(f"the same beside {displayed.clients} clients", "1/s", 10_000, 1000 / displayed.data_ms, at_least=True),
        Goal(f"{displayed.clients} clients: lag, in records of a second", "s", 1.0, displayed.lag_s),
        Goal(f"{displayed.clients} clients display the last document", "", 1, float(displayed.reached), at_least=True),
        Goal("topic to frame, idle, p50", "ms", 15, displayed.p50_ms),
        Goal(f"{killed.kills} kills: records lost, doubled or misplaced", "", 0, killed.faults.total),
        *caught,
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write build/bench/intake.json and print the figures."""
    arguments = parser(__spec__, __doc__, report="build/bench/intake.json", quick="fewer records, clients and kills")
    arguments.add_argument("--url", help="of a PostgreSQL database for the kills")
    url = arguments.parse_args(argv).url
    with tempfile.TemporaryDirectory(prefix="diem-intake-") as folder, Report(4 + KILLS // 20 + 3) as report:
        drained, displayed, killed, apart = asyncio.run(run(Path(folder), url, report))
        found = goals(drained, displayed, killed, apart)
        report.rows("rates", {"read": drained._asdict(), "displayed": displayed._asdict()})
        kills = {
            name: {**each._asdict(), "faults": each.faults.total}
            for name, each in (("killed", killed), ("apart", apart))
        }
        report.rows("kills", kills)
        report.goals(found)
    figures = {
        "partitions": PARTITIONS,
        "drained": drained._asdict(),
        "displayed": displayed._asdict(),
        "killed": {**killed._asdict(), "faults": killed.faults._asdict()},
        "apart": {**apart._asdict(), "faults": apart.faults._asdict()},
    }
    print(f"written: {write('intake', figures, found)}")
    return exit_code(found)


if __name__ == "__main__":
    sys.exit(main())
