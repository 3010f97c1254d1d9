"""``python -m experiments.shares``: what one server has to do when there are 1, 2 and 4 of them, on the X and Z axes.

On the X axis every server takes every update; on the Z axis each takes its share. The same load in every run: 200
endpoints, 300 updates a second in bulk, 300 clients of 10 subscriptions. Counted over the writing only: updates taken
from the feed and subscriptions held by each server, CPU time of servers and bridges, and links of the proxy.
``QUICK=1``: half the time, with 1 and 2 servers.
"""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final, NamedTuple

from tests.bench.report import Report
from tests.load.bench import Goal, exit_code, write
from tests.load.client_process import ClientProcess
from tests.load.clients import Plan
from tests.load.meter import look
from tests.load.system import System
from tests.load.writes import Writer
from tests.support.commandline import parser
from tests.support.size import sized

ENDPOINTS: Final = [f"/share/{number:03}" for number in range(200)]
RATE: Final = 300.0
CLIENTS: Final = sized(300, 300, 20)
SETTLE_SECONDS: Final = 30.0


class Axis(NamedTuple):
    """A mode, under the name that the report gives it."""

    name: str
    mode: str
    options: tuple[str, ...] = ()


_ALL: Final = [
    Axis("x", "x"),
    Axis("z shared", "z-proxy"),
]
AXES: Final = sized(_ALL, _ALL, _ALL[1:2])


async def measure(axis: Axis, servers: int, seconds: float, folder: Path) -> dict[str, Any]:
    """The mean over the servers of one run."""
    options = ("--servers", str(servers), "--max-servers", str(servers), "--clients-per-address", "500", *axis.options)
    async with System(axis.mode, folder, options) as system:
        random = Random(1)
        writer = Writer(system.rest, system.write_key, ENDPOINTS, random, rate=RATE)
        plan = Plan(servers=system.servers, rest=system.rest, endpoints=ENDPOINTS, clients=CLIENTS)
        try:
            await writer.put_all()
            async with ClientProcess(plan) as clients:
                await clients.expect(writer.newest())
                if not await clients.until(lambda figures: figures["behind"] == 0, SETTLE_SECONDS):
                    raise TimeoutError(f"not all clients have the present versions: {clients.figures}")
                before, began = await look(system), monotonic()
                await writer.run(seconds)
                await asyncio.sleep(1.0)
                after, changes = await look(system), writer.changed_since(began)
        finally:
            await writer.close()
    return compared(before, after, changes, servers)


def compared(
    before: dict[str, dict[str, float]], after: dict[str, dict[str, float]], changes: int, servers: int
) -> dict[str, Any]:
    """What each server did on the average; CPU in microseconds for each accepted update."""

    def each(kind: str, what: str, *, now: bool = False) -> float:
        names = [name for name in after if name.startswith(f"{kind}-")]
        return sum(after[name].get(what, 0) - (0 if now else before[name].get(what, 0)) for name in names) / servers

    return {
        "updates": changes,
        "taken by a server, of 1": round(each("websocket", "updates_received_total") / changes, 3),
        "subscriptions of a server": each("websocket", "subscriptions", now=True),
        "server CPU, us an update": round(each("websocket", "cpu") / changes * 1e6, 1),
        "bridge CPU, us an update": round(each("bridge", "cpu") / changes * 1e6, 1),
        "proxy CPU, us an update": round(each("proxy", "cpu") * servers / changes * 1e6, 1),
        "links of proxies to a server": each("websocket", "proxy_links", now=True),
    }


async def run() -> int:
    """Run all, print the table, write build/bench/shares.json."""
    counts, seconds = sized(([1, 2, 4], 20.0), ([1, 2], 8.0), ([1], 1.0))
    figures: dict[str, dict[str, Any]] = {}
    with Report(len(AXES) * len(counts)) as report, tempfile.TemporaryDirectory() as folder:
        for axis in AXES:
            for servers in counts:
                report.step(f"{axis.name}, {servers} servers")
                found = await measure(axis, servers, seconds, Path(folder) / f"{axis.name}-{servers}".replace(" ", "-"))
                figures[f"{axis.name}, {servers}"] = found
        goals = judged(figures, counts[-1])
        report.rows("Each server, on the average", figures)
        report.goals(goals)
    print(f"written: {write('shares', {'figures': figures}, goals)}")
    return exit_code(goals)


def judged(figures: dict[str, dict[str, Any]], most: int) -> list[Goal]:
    """On the Z axis the share of a server falls with their number; on the X axis it does not."""
    goals = []
    for what in ("taken by a server, of 1", "server CPU, us an update"):
        for axis in (each.name for each in AXES if each.mode != "x"):
            ratio = figures[f"{axis}, {most}"][what] / figures[f"{axis}, 1"][what]
            # The endpoints are hashed: the most loaded server has more than 1/S, the average has just that.
            goals.append(
                Goal(f"{axis}: {what}, {most} servers to 1", "x", 1.3 / most if "taken" in what else 0.75, ratio)
            )
    return goals


def main(argv: Sequence[str] | None = None) -> int:
    quick = "half the time, with 1 and 2 servers"
    parser(__spec__, __doc__, report="build/bench/shares.json", quick=quick).parse_args(argv)
    return asyncio.run(run())


if __name__ == "__main__":
    sys.exit(main())
