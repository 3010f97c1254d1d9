"""How much one server carries: writes at random times, faster and faster, until the delay grows beyond its knee.

The server has a core of its own. Its clients, the feed and the probe that takes the delays have the other one.
"""

import asyncio
import os
import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final, NamedTuple

from experiments.modes.compare import error
from experiments.modes.regimes import R1, endpoints_of
from learning.costs import UTILISATION, RoleCosts
from learning.modes import terms
from learning.modes.load import Data, Load
from tests.bench import native
from tests.bench.drain import Drain, Probe, draining, own_core, probing
from tests.bench.phases import subscribe
from tests.bench.procfs import cost
from tests.bench.servers import Diem, diem
from tests.load.interests import Interests
from tests.support.size import sized

BATCH: Final = R1.batch
PROBED: Final = "/modes/probed"
SETTLE_S: Final = 0.5
SLOW: Final = 0.15
"""Utilisation at which the delay of a write that need not wait is measured."""
_ALL: Final = (0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.3, 1.5, 1.75, 2.0)
STEPS: Final = sized(_ALL, _ALL, _ALL[:2])
"""Rates, as utilisations that the model predicts; the ramp ends after the knee."""
STEP_S: Final = sized(6.0, 2.0, 0.2)
BEYOND: Final = 2
"""Steps above the knee before the ramp ends."""
DRAWS: Final = 200_000
QUANTILE: Final = 0.99
SLICE: Final = 100
"""Writes in a row of which the slowest are taken: the median of such slices is not moved by what a machine does now and
then, which keeps dozens of writes waiting once in a while, and a queue that is too long is so in all of them."""


class Step(NamedTuple):
    """One rate."""

    rate: float
    """Writes a second."""
    p50_s: float
    p99_s: float
    """From the time when a write was due until the probe had all of it; as of :func:`slowest`."""
    utilisation: float
    """Share of its core that the server used."""


class Knee(NamedTuple):
    """The predicted knee, and the measured one."""

    predicted: float
    """Updates a second at which the server uses ``UTILISATION`` of its core."""
    measured: float | None
    """Updates a second up to which delays are those of a queue at this utilisation; None: it was not reached."""
    factor: float
    """How much longer than a lone write the slowest of 100 take in such a queue."""
    steps: list[Step]

    @property
    def error(self) -> float | None:
        """Error of the prediction, in percent."""
        return None if self.measured is None else error(self.predicted, self.measured)

    def as_json(self) -> dict[str, Any]:
        """Return it for the report."""
        steps = [step._asdict() for step in self.steps]
        return {"predicted": self.predicted, "measured": self.measured, "factor": self.factor, "steps": steps}


def queue_factor(utilisation: float, *, draws: int = DRAWS, seed: int = 1) -> float:
    """Return the slowest times (:func:`slowest`) in a queue with random arrivals (M/D/1), in service times.

    By Lindley's recursion, for lack of a closed form.
    """
    random, waited, times = Random(seed), 0.0, []
    for _ in range(draws):
        times.append(waited + 1.0)
        waited = max(0.0, waited + 1.0 - random.expovariate(utilisation))
    return slowest(times)


def slowest(times: Sequence[float]) -> float:
    """Return the 99th percentile of times in their order: the median of those of its slices."""
    slices = [times[at : at + SLICE] for at in range(0, max(1, len(times) - SLICE + 1), SLICE)]
    return statistics.median(map(quantile, slices))


def quantile(values: Sequence[float], share: float = QUANTILE) -> float:
    """Return a quantile."""
    ranked = sorted(values)
    return ranked[round((len(ranked) - 1) * share)]


def knee_of(steps: Sequence[Step], limit_s: float) -> float | None:
    """Return the rate at which p99 passes the limit, between the steps around it; None if it never stays above."""
    for number in range(1, len(steps)):
        before, after = steps[number - 1], steps[number]
        # A single slow step is another process on the machine.
        if before.p99_s <= limit_s and all(step.p99_s > limit_s for step in steps[number:]):
            share = (limit_s - before.p99_s) / (after.p99_s - before.p99_s)
            return before.rate + share * (after.rate - before.rate)
    return None


def write_cost_s(costs: RoleCosts) -> tuple[float, float]:
    """Return the seconds of CPU of one write, and of being there with all connections for a second."""
    load = Load(R1.clients + 1, R1.endpoints, BATCH, R1.subscriptions, BATCH, data=Data.NONE)
    one = terms.added(
        [
            terms.server(BATCH, 1.0),
            terms.framed(BATCH * load.watched),
            terms.clients_of("delivery_us", load.sends() + 1, load.frames + 1, 0.0, 0.0),
        ]
    )
    there = {"server_idle_us_per_s": 1.0, "connection_us_per_s": R1.clients + 1.0}
    idle = costs.value({"server_idle_us_per_s": 1.0})
    return (costs.value(one) - idle) / 1e6, costs.value(there) / 1e6


async def find_knee(directory: Path, costs: RoleCosts) -> Knee:
    """Ramp up until two steps after the knee."""
    before = os.sched_getaffinity(0)
    server_core, our_core = own_core()
    try:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(diem(directory, core=server_core))
            program = native.program("drain")
            drain = await stack.enter_async_context(draining(program, server.port, R1.clients, net=1, core=our_core))
            probe = await stack.enter_async_context(probing(server.port))
            # What arrives in 50 ms would keep the core from the probe for 20 ms.
            drain.sweep_every(1)
            ramp = _Ramp(server, drain, probe)
            await ramp.subscribe()
            return await _ramp_up(ramp, costs, STEP_S)
    finally:
        os.sched_setaffinity(0, before)


async def _ramp_up(ramp: "_Ramp", costs: RoleCosts, seconds: float) -> Knee:
    write_s, idle_s = write_cost_s(costs)
    alone = await ramp.step(SLOW / write_s, 2 * seconds)
    factor = queue_factor(UTILISATION)
    # A write that need not wait takes the server less than the probe: that includes the ways there and back.
    service_s = max(0.0, alone.utilisation - idle_s) / alone.rate
    limit_s, steps = alone.p50_s + (factor - 1) * service_s, [alone]
    for utilisation in STEPS:
        steps.append(await ramp.step(utilisation / write_s, seconds))
        if len(steps) > BEYOND and all(step.p99_s > limit_s for step in steps[-BEYOND:]):
            break
    measured = knee_of(steps, limit_s)
    predicted = (UTILISATION - idle_s) / write_s
    return Knee(predicted * BATCH, None if measured is None else measured * BATCH, factor, steps)


class _Ramp:
    """Writes at a rate, and takes the delays."""

    def __init__(self, server: Diem, drain: Drain, probe: Probe) -> None:
        self._server = server
        self._drain = drain
        self._probe = probe
        self._names = endpoints_of(R1)
        self._random = Random(1)

    async def subscribe(self) -> None:
        """Subscribe the clients as in R1, and the probe to an endpoint of its own, the last one of each write."""
        interests = Interests(self._names, 0, 1)
        for number in range(self._drain.count):
            self._drain.send(number, subscribe(*interests.first(number, R1.subscriptions, self._random)))
        await self._probe.subscribe(PROBED)
        # Replies come in the order of the requests, so the clients of the drain have theirs soon.
        await self._probe.reach(PROBED, self._server.publish(*self._names, PROBED))
        await asyncio.sleep(SETTLE_S)

    async def step(self, rate: float, seconds: float) -> Step:
        """Write at random times for some seconds."""
        pending: asyncio.Queue[tuple[float, int] | None] = asyncio.Queue()
        delays: list[float] = []
        taking = asyncio.create_task(self._take(pending, delays))
        start, before = monotonic(), cost(self._server.pid)
        due = start
        while (due := due + self._random.expovariate(rate)) < start + seconds:
            await asyncio.sleep(max(0.0, due - monotonic()))
            names = self._random.sample(self._names, BATCH - 1)
            pending.put_nowait((due, self._server.publish(*names, PROBED)))
        used, took = cost(self._server.pid) - before, monotonic() - start
        pending.put_nowait(None)
        await taking
        return Step(rate, statistics.median(delays), slowest(delays), used.cpu / took)

    async def _take(self, pending: asyncio.Queue[tuple[float, int] | None], delays: list[float]) -> None:
        while (one := await pending.get()) is not None:
            due, version = one
            await self._probe.reach(PROBED, version)
            delays.append(monotonic() - due)
