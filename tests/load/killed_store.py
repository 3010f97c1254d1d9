"""``python -m tests.load.killed_store``: 100 kills of the Data Service under ingest on each database (``QUICK=1``: 10).

No accepted change may be lost, no version may be used twice. Writes build/bench/killed_store.json.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.load import bench
from tests.load.bench import Goal
from tests.support import postgres
from tests.support.commandline import parser
from tests.support.postgres import NoPostgres
from tests.support.store_kills import Broken, kill_repeatedly

KILLS = 10 if os.environ.get("QUICK") else 100


def main(argv: Sequence[str] | None = None) -> int:
    """Kill repeatedly, and print the result."""
    parser(__spec__, __doc__, report="build/bench/killed_store.json", quick="10 kills").parse_args(argv)
    figures: dict[str, dict[str, float | str]] = {}
    broken = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="diem-killed-")))
        urls = {"sqlite": f"sqlite:///{folder / 'data.db'}"}
        try:
            cluster = stack.enter_context(postgres.running())
            urls["postgresql"] = cluster.url(cluster.new_database())
        except NoPostgres as error:
            print(error, file=sys.stderr)
        for name, url in urls.items():
            began = time.monotonic()
            try:
                record = asyncio.run(kill_repeatedly(folder / name, KILLS, 1, DATABASE_URL=url))
            except Broken as error:
                broken += 1
                figures[name] = {"broken": str(error)}
                continue
            figures[name] = {
                "kills": record.kills,
                "requests_accepted": record.answers,
                "lines_accepted": record.streamed,
                "versions": len(record.values),
                "found_without_an_answer": record.in_doubt,
                "seconds": round(time.monotonic() - began, 1),
            }
    goals = [Goal("databases with a lost change or a version used twice", "", 0, broken)]
    path = bench.write("killed_store", dict(figures), goals)
    for name, each in figures.items():
        print(f"  {name}: {each}")
    print(bench.table(goals))
    print(path)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
