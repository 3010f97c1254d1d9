"""Targets of ``make bench-cost``: processes under loads of known composition, and the fit of their costs."""

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from experiments.loads import EVERY, MIX, Load, Schedule, Write, quantities
from experiments.regression import Estimate, Quantities, fit, predicted
from tests.bench.drain import Drain
from tests.bench.procfs import cost

SETTLE: Final = 0.08
Block = tuple[Load, Quantities, Mapping[str, float]]
"""Requested load, actual quantities, and CPU seconds of each process."""


@dataclass
class Target:
    """A measured system, its clients, and the blocks measured."""

    pids: Mapping[str, int]
    drain: Drain
    write: Write
    loads: Sequence[Load]
    blocks: list[Block] = field(default_factory=list)

    async def block(self, load: Load, schedule: Schedule) -> None:
        writes = schedule.writes(load)
        counted = (await self.drain.count_now()).updates
        began, before = time.monotonic(), cpu_seconds(self.pids)
        for number, names in enumerate(writes, 1):
            await self.write(names)
            await asyncio.sleep(max(0.0, began + number * EVERY - time.monotonic()))
        # What beats does so once a second: in nothing but rest, one beat is to be there.
        await asyncio.sleep(SETTLE if writes else 1.0)
        seconds, after = time.monotonic() - began, cpu_seconds(self.pids)
        # The clients look every 50 ms.
        await asyncio.sleep(SETTLE)
        frames = (await self.drain.count_now()).updates - counted
        cpu = {name: after[name] - before[name] for name in after}
        self.blocks.append((load, quantities(seconds, writes, frames), cpu))

    def fitted(self, *, process: str | None = None, without: Sequence[str] = ()) -> dict[str, Estimate]:
        """Fit the CPU seconds of each quantity, for one process or for all together."""
        blocks = [block for block in self.blocks if block[0] != MIX]
        totals = [sum(cpu.values()) for _, _, cpu in blocks]
        # What cost little is not known that much better: whether a beat falls into it is chance.
        scales = [max(total, statistics.median(totals)) for total in totals]
        found = [{n: q for n, q in there.items() if n not in without} for _, there, _ in blocks]
        return fit(found, [_of(cpu, process) for _, _, cpu in blocks], scales)

    def off(self, estimates: Mapping[str, Estimate], *, process: str | None = None) -> float:
        """Return the error of the model for the mixture, in percent of its cost above an idle process."""
        mixed = [
            ({n: there[n] for n in estimates}, _of(cpu, process)) for load, there, cpu in self.blocks if load == MIX
        ]
        idle = estimates["seconds"].value * sum(there["seconds"] for there, _ in mixed)
        ours, theirs = sum(predicted(estimates, there) for there, _ in mixed), sum(cpu for _, cpu in mixed)
        return 100 * abs(ours - theirs) / (theirs - idle)


def _of(cpu: Mapping[str, float], process: str | None) -> float:
    return sum(cpu.values()) if process is None else cpu[process]


def cpu_seconds(pids: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU seconds so far."""
    return {name: cost(pid).cpu for name, pid in pids.items()}
