"""A real Mosquitto for tests, and a publisher."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

SAVED = "persistence true\nautosave_on_changes true\nautosave_interval 1\n"
"""Lines of the configuration of a broker that loses nothing when it is killed."""


def program() -> str | None:
    """Return the path of Mosquitto; None: it is not installed."""
    return shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


needs_mosquitto = pytest.mark.skipif(
    program() is None and not os.environ.get("CI"),
    reason="No Mosquitto here: run deploy/install/mosquitto.sh as root (on Debian: apt install mosquitto)",
)


class Broker:
    """A broker on a free port of this machine; ``lines`` are added to its configuration."""

    def __init__(self, directory: Path, lines: str = "allow_anonymous true\n") -> None:
        self.port = free_port()
        self._directory = directory / "mosquitto"
        self._directory.mkdir()
        self._lines = lines
        self._child: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start, and wait until it accepts connections."""
        file = self._directory / "mosquitto.conf"
        user = "user root\n" if os.geteuid() == 0 else ""
        place = f"persistence_location {self._directory}/\n"
        file.write_text(f"listener {self.port} 127.0.0.1\n{user}{place}{self._lines}")
        self._child = await asyncio.create_subprocess_exec(
            str(program()), "-c", str(file), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    return
                assert self._child.returncode is None, "Mosquitto has ended"
                await asyncio.sleep(0.01)

    async def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal and wait for the exit."""
        if self._child is not None and self._child.returncode is None:
            self._child.send_signal(number)
            await self._child.wait()


@contextlib.asynccontextmanager
async def running(broker: Broker) -> AsyncIterator[Broker]:
    """Start a broker, and kill it at the end."""
    await broker.start()
    try:
        yield broker
    finally:
        await broker.end(signal.SIGKILL)


class Publisher:
    """A client that publishes, and keeps what is not acknowledged while it connects again."""

    def __init__(self, port: int, **options: Any) -> None:
        self._client = Client(CallbackAPIVersion.VERSION2, **options)
        self._client.reconnect_delay_set(min_delay=0, max_delay=0)
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    async def publish(self, topic: str, payload: str | bytes, qos: int = 1, *, retain: bool = False) -> None:
        """Publish a message; return once the broker has it."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._client.is_connected():
                await asyncio.sleep(0.01)
        sent = self._client.publish(topic, payload, qos, retain)
        await asyncio.to_thread(sent.wait_for_publish, PATIENCE_S)
        assert sent.is_published()

    async def close(self) -> None:
        self._client.disconnect()
        await asyncio.to_thread(self._client.loop_stop)
