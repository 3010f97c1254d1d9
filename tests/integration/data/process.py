"""A Data Service in a process of its own, on free ports, and clients of its interfaces."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import orjson

from diem.process.auth import SharedKey
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
DEFAULTS = {"PORT": "0", "INTERNAL_PORT": "0", "BUSY_TIMEOUT": "60"}
"""``DIEM_DATA_*`` of every process, unless overridden: no write is refused because the machine stands still."""
RESTARTED = {"STANDBY": "true"}
"""Settings of a process that follows a killed one, for tests of something else: they do not depend on how soon
PostgreSQL ends the killed one's session."""
AT_ONCE_S = 1.0
"""Less than what is left of the time-out of a write when a read is sent right after it."""
HOUR = "2026-01-01T00:00:00Z"


class DataProcess:
    """One process; its log on standard error is read for its ports."""

    def __init__(self, child: asyncio.subprocess.Process, state_dir: Path) -> None:
        self.child = child
        self.state_dir = state_dir
        self.log: list[str] = []
        self.serving: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._reading: asyncio.Future[None] = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.child.stderr is not None
        async for line in self.child.stderr:
            self.log.append(line.decode().rstrip())
            with contextlib.suppress(orjson.JSONDecodeError):
                event = orjson.loads(line)
                if event["event"] == "serving" and not self.serving.done():
                    self.serving.set_result(event)

    async def logged(self, text: str) -> None:
        """Wait until a line of the log has a text."""
        async with asyncio.timeout(PATIENCE_S):
            while not any(text in line for line in self.log):  # the log has no event
                await asyncio.sleep(0.02)

    async def ready(self) -> None:
        """Wait until the process serves."""
        # Its log ends with it, so a process that ends early is not waited for.
        waited: list[asyncio.Future[Any]] = [self.serving, self._reading]
        await asyncio.wait(waited, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        assert self.serving.done(), "\n".join(self.log)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.serving.result()['port']}"

    @property
    def internal(self) -> str:
        return f"http://127.0.0.1:{self.serving.result()['internal_port']}"

    @property
    def write(self) -> dict[str, str]:
        return {"Authorization": SharedKey.load(self.state_dir / "write.key").header}

    @property
    def key(self) -> SharedKey:
        return SharedKey.load(self.state_dir / "internal.key")

    @property
    def shared(self) -> dict[str, str]:
        return {"Authorization": self.key.header}

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the exit."""
        if self.child.returncode is None:
            self.child.send_signal(number)
        return await self.wait()

    async def wait(self) -> int:
        """Wait for the exit, and until its whole log is read."""
        code = await asyncio.wait_for(self.child.wait(), PATIENCE_S)
        await self._reading
        return code


async def start(state_dir: Path, *, config: str = "", launcher: Sequence[str] = (), **settings: str) -> DataProcess:
    """Start a Data Service without waiting for it.

    ``config`` is its diem.toml, ``launcher`` begins its command line, ``settings`` are ``DIEM_DATA_*``, or have their
    whole name.
    """
    state_dir.mkdir(exist_ok=True)
    for name in ("internal.key", "write.key"):
        SharedKey.create(state_dir / name)
    file = state_dir / "diem.toml"
    file.write_text(config)
    own = DEFAULTS | {"CONFIG": str(file)} | settings
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DIEM_")}
    environment |= {"DIEM_STATE_DIR": str(state_dir)} | {
        name if name.startswith("DIEM_") else f"DIEM_DATA_{name}": value for name, value in own.items()
    }
    child = await asyncio.create_subprocess_exec(
        *(*launcher, sys.executable, "-m", "deploy", "run", "data"),
        cwd=ROOT,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    return DataProcess(child, state_dir)


@contextlib.asynccontextmanager
async def serving(
    state_dir: Path, *, config: str = "", launcher: Sequence[str] = (), **settings: str
) -> AsyncIterator[DataProcess]:
    """Start a Data Service and wait until it serves; kill it at the end if it still runs."""
    process = await start(state_dir, config=config, launcher=launcher, **settings)
    try:
        await process.ready()
        yield process
    finally:
        await process.end(signal.SIGKILL)


def bulk(values: dict[str, float]) -> dict[str, Any]:
    """Return the body of a bulk PUT of one-point datasets."""
    return {
        "datasets": [
            {"endpoint": name, "unit": "MW", "resolution": "PT1H", "points": [{"time": HOUR, "value": value}]}
            for name, value in values.items()
        ]
    }


async def until(http: httpx.AsyncClient, url: str, status: int, **request: Any) -> None:
    """Repeat a GET until the answer has a status."""
    async with asyncio.timeout(PATIENCE_S):
        while (await http.get(url, **request)).status_code != status:  # another process changes it
            await asyncio.sleep(0.02)
