"""``make bench-traffic``: what recording of traffic costs a WebSocket server, against one that records none.

Servers of the same run, measured in turn; CPU of the server's process with its writing, in files. ``QUICK=1``:
fewer rounds.
"""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from diem.process.auth import SharedKey
from tests.bench import native, phases
from tests.bench.drain import draining, own_core, probing
from tests.bench.fanout import PLAN
from tests.bench.figures import figure, goal
from tests.bench.phases import HOT, Plan
from tests.bench.report import Report
from tests.bench.servers import Target, diem
from tests.load.bench import write
from tests.support.commandline import parser

DELIVERY, EIGHT = "delivery, one update a tick", "delivery, eight a tick"
FOREIGN, REQUEST = "update without a subscriber", "subscribe or unsubscribe"
GOALS = {
    DELIVERY: ("x", "x not recorded", 1.03),
    EIGHT: ("x", "x not recorded", 1.03),
    FOREIGN: ("more_us", "us more", 0.15),
    REQUEST: ("more_us", "us more", 6.0),
}
ON, OFF, AGAIN = "recorded", "not recorded", "not recorded, again"


async def measure(plan: Plan, directory: Path, report: Report) -> dict[str, Any]:
    """All figures, of each round the ratio to the server that records nothing."""
    drain = native.program("drain")
    cores = own_core()
    async with contextlib.AsyncExitStack() as stack:
        targets: dict[str, Target] = {}
        for net, name in enumerate((ON, OFF, AGAIN), 1):
            place = directory / str(net)
            place.mkdir()
            SharedKey.create(place / "traffic.salt")
            sink = "files" if name == ON else "off"
            more = {"DIEM_STATE_DIR": str(place), "DIEM_TRAFFIC_SINK": sink}
            server = await stack.enter_async_context(diem(place, core=cores[0], more=more))
            clients = await stack.enter_async_context(
                draining(drain, server.port, plan.clients, net=net, core=cores[1])
            )
            clients.send_all(phases.subscribe(*HOT))
            await clients.reach(replies=clients.count)
            probe = await stack.enter_async_context(probing(server.port))
            await probe.subscribe(*HOT)
            targets[name] = Target(server, clients, probe)
        return await _rounds(targets, plan, report)


async def _rounds(targets: dict[str, Target], plan: Plan, report: Report) -> dict[str, Any]:
    rounds: dict[str, list[dict[str, float]]] = {}

    async def there_and_back(what: str, work: Callable[[Target], Awaitable[float]]) -> None:
        spent = dict.fromkeys(targets, 0.0)
        for name in [*targets, *reversed([*targets])]:
            spent[name] += await work(targets[name]) / 2
        rounds.setdefault(what, []).append(spent)

    async def delivery(target: Target, endpoints: list[str], ticks: int) -> float:
        return (await target.block(endpoints, ticks)).cpu_us

    for number in range(1, plan.rounds + 1):
        report.step(f"deliveries, round {number}")
        await there_and_back(DELIVERY, lambda each: delivery(each, HOT[:1], plan.ticks))
        await there_and_back(EIGHT, lambda each: delivery(each, HOT, max(2, plan.ticks // 8)))
        report.step(f"updates without subscribers and requests, round {number}")
        await there_and_back(FOREIGN, lambda each: phases.foreign(each.server, 2))  # type: ignore[arg-type]
        if number <= 4:  # a client may send 20 messages at once
            await there_and_back(REQUEST, lambda each: phases.requests(each, 1))
    return {
        what: {
            "us": {name: figure([spent[name] for spent in found]) for name in targets},
            "x": figure([spent[ON] / spent[OFF] for spent in found]),
            "a_a": figure([spent[AGAIN] / spent[OFF] for spent in found]),
            "more_us": figure([spent[ON] - (spent[OFF] + spent[AGAIN]) / 2 for spent in found]),
        }
        for what, found in rounds.items()
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser(__spec__, __doc__, report="build/bench/traffic.json", quick="").parse_args(argv)
    with tempfile.TemporaryDirectory() as directory, Report(2 * PLAN.rounds) as report:
        try:
            figures = asyncio.run(measure(PLAN, Path(directory), report))
        except native.NoCompiler as error:
            print(error, file=sys.stderr)
            return 1
    goals = [goal(what, unit, bound, figures[what][key]) for what, (key, unit, bound) in GOALS.items()]
    report.goals(goals)
    print(f"written: {write('traffic', {'figures': figures}, goals)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
