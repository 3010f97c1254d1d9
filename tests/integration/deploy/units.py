"""``python -m tests.integration.deploy.units SCRIPT UNITS``: run the units of a host as systemd does, without it.

It runs in a network and a mount namespace of its own. The first line on standard input, ``start``, installs the units
and starts those of the target; later ones are ``start UNIT...``, ``stop UNIT...`` and ``restart UNIT...``, of spare
units, too, and ``signal NUMBER UNIT...``. The end of standard input stops everything. It prints a line for each event:
``start UNIT``, ``exit UNIT CODE``, ``stopped UNIT CODE``, and ``done`` when it has done what a line says. Of a unit it
reads what decides how a process runs.
"""

import asyncio
import os
import shlex
import signal
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

RUN = Path("/run")


class Unit:
    """The directives of an instance of ``diem@.service`` by name; a directive may occur several times."""

    def __init__(self, template: Path, changes: Path) -> None:
        self.name = changes.parent.name.removesuffix(".d")
        self._all: dict[str, list[str]] = defaultdict(list)
        instance = self.name.partition("@")[2].removesuffix(".service")
        for line in (template.read_text() + changes.read_text()).splitlines():
            if "=" in line and not line.startswith(("#", ";")):
                name, _, value = line.replace("%i", instance).partition("=")
                self._all[name] = [*self._all[name], value] if value else []

    def words(self, name: str) -> list[str]:
        return [word for value in self._all[name] for word in value.split()]

    def one(self, name: str, default: str = "") -> str:
        return self._all[name][-1] if self._all[name] else default

    def environment(self) -> dict[str, str]:
        """Return the variables of a process: the usual ones, then its own."""
        found = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        for text in self._all["Environment"]:
            found |= _assignments(text)
        for text in self._all["EnvironmentFile"]:
            file = Path(text.removeprefix("-"))
            if file.exists() or not text.startswith("-"):
                for line in file.read_text().splitlines():
                    found |= {} if line.startswith("#") else _assignments(line)
        return found


Running = dict[Unit, tuple[asyncio.subprocess.Process, asyncio.Task[None]]]
"""The latest process of each unit, and what supervises it."""


def _assignments(text: str) -> Mapping[str, str]:
    return {name: value for name, _, value in (word.partition("=") for word in shlex.split(text))}


class Host:
    """The services of a host."""

    def __init__(self, units: Path) -> None:
        (wants,) = [line for line in (units / "diem.target").read_text().splitlines() if line.startswith("Wants=")]
        self.wanted = wants.removeprefix("Wants=").split()
        """Names of the units that the target starts; others are spare."""
        found = [Unit(units / "diem@.service", file) for file in sorted(units.glob("*.service.d/diem.conf"))]
        waiting = {unit.name: unit for unit in found}
        self._units: list[Unit] = []
        while waiting:
            # Those first that start after no other one.
            free = [unit for unit in waiting.values() if not waiting.keys() & set(unit.words("After"))]
            assert free, f"a circle of After: {sorted(waiting)}"
            self._units += free
            waiting = {name: unit for name, unit in waiting.items() if unit not in free}
        self._running: Running = {}
        self._stopping: set[Unit] = set()

    async def order(self, verb: str, names: Sequence[str]) -> None:
        """Start, stop, restart or signal units, in the order of their dependencies."""
        number, *names = names if verb == "signal" else ("0", *names)
        if unknown := set(names) - {unit.name for unit in self._units}:
            raise ValueError(f"there are no units {sorted(unknown)}")
        found = [unit for unit in self._units if unit.name in names]
        if verb == "signal":
            for unit in found:
                self._running[unit][0].send_signal(int(number))
        if verb in {"stop", "restart"}:
            await self._stop(found)
        if verb in {"start", "restart"}:
            for unit in found:
                process = await self._start(unit)
                self._running[unit] = (process, asyncio.create_task(self._supervise(unit, process)))

    async def stop(self) -> None:
        """Stop everything."""
        await self._stop(self._units)

    async def _stop(self, units: Sequence[Unit]) -> None:
        found = [unit for unit in reversed(units) if unit in self._running]
        self._stopping.update(found)
        for unit in found:
            process, supervising = self._running[unit]
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(asyncio.shield(supervising), float(unit.one("TimeoutStopSec")))
            except TimeoutError:
                process.kill()
                await supervising
            del self._running[unit]
            print(f"stopped {unit.name} {process.returncode}", flush=True)
        self._stopping.difference_update(found)

    async def _start(self, unit: Unit) -> asyncio.subprocess.Process:
        for name in unit.words("RuntimeDirectory"):
            (RUN / name).mkdir(mode=0o700, exist_ok=True)
        process = await asyncio.create_subprocess_exec(
            *shlex.split(unit.one("ExecStart")),
            cwd=unit.one("WorkingDirectory", "/"),
            env=unit.environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sys.stderr,
            stderr=sys.stderr,
        )
        print(f"start {unit.name}", flush=True)
        return process

    async def _supervise(self, unit: Unit, process: asyncio.subprocess.Process) -> None:
        while True:
            code = await process.wait()
            print(f"exit {unit.name} {code}", flush=True)
            again = unit.one("Restart") == "on-failure" and code != 0
            if unit in self._stopping or not again or str(code) in unit.words("RestartPreventExitStatus"):
                return
            await asyncio.sleep(float(unit.one("RestartSec")))
            if unit in self._stopping:
                return
            process = await self._start(unit)
            self._running[unit] = (process, self._running[unit][1])


async def main() -> None:
    script, units = sys.argv[1:]
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    await orders.readline()
    installed = await asyncio.create_subprocess_exec("sh", script, stdout=sys.stderr, stderr=sys.stderr)
    assert await installed.wait() == 0
    host = Host(Path(units))
    await host.order("start", host.wanted)
    print("done", flush=True)
    while line := await orders.readline():
        verb, *names = line.decode().split()
        await host.order(verb, names)
        print("done", flush=True)
    await host.stop()


if __name__ == "__main__":
    asyncio.run(main())
