"""Time for a bridge, as a process, to catch up, with a reader that only parses."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from diem.fanout.feed_state import FeedState
from diem.kafka.config import KafkaOptions
from diem.links.feed_reader import FeedReader
from diem.process.auth import SharedKey
from diem.protocol import feed
from tests.support.ports import free_port

_START = "import sys; from diem.process.program import start; sys.exit(start('bridge'))"


class Parsing:
    """A server's parsing of a feed, without delivery."""

    def __init__(self) -> None:
        self.state = FeedState()
        self.began = 0.0
        self.done = asyncio.Event()

    def resume(self) -> feed.Resume:
        self.began = time.monotonic()
        return self.state.resume()

    def hello(self, message: feed.Hello) -> None:
        self.state.hello(message.source, message.names)

    def batch(self, *batches: feed.Batch) -> None:
        for batch in batches:
            self.state.apply(batch)

    def caught_up(self, name: str) -> None:
        self.state.finish_catch_up(name)
        if self.state.caught_up:
            self.done.set()

    def resync(self, message: feed.Resync) -> None:
        raise AssertionError(f"no record is bad here: {message}")

    def owners(self, message: feed.Owners) -> None:
        pass

    def traced(self, message: feed.Traced) -> None:
        raise AssertionError(f"no update is traced here: {message}")

    def heartbeat(self) -> None:
        pass


async def catch_up(options: KafkaOptions, directory: Path, *, endpoints: int) -> dict[str, Any]:
    """Return the seconds from ``resume`` to the last ``caught_up``, and the bridge's cost."""
    key_file = directory / "internal.key"
    key, port = SharedKey.create(key_file), free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "DIEM_INTERNAL_KEY_FILE": str(key_file),
        "DIEM_BRIDGE_INTERNAL_PORT": str(port),
        "DIEM_KAFKA_BOOTSTRAP_SERVERS": options.bootstrap_servers,
        "DIEM_KAFKA_TOPIC_PREFIX": options.topic_prefix,
        "DIEM_LOG_LEVEL": "error",
    }
    bridge = await asyncio.create_subprocess_exec(sys.executable, "-c", _START, env=environment)
    sink = Parsing()
    reading = asyncio.create_task(FeedReader(f"ws://127.0.0.1:{port}/feed", key, sink).run())
    try:
        async with asyncio.timeout(120):
            await sink.done.wait()
        seconds = time.monotonic() - sink.began
        if len(sink.state.retained) != endpoints:
            raise AssertionError(f"{len(sink.state.retained)} endpoints")
        ticks = Path(f"/proc/{bridge.pid}/stat").read_text().rpartition(")")[2].split()
        cpu = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
        peak = next(line for line in Path(f"/proc/{bridge.pid}/status").read_text().splitlines() if "VmHWM" in line)
        return {
            "seconds": round(seconds, 2),
            "bridge_cpu_seconds": round(cpu, 2),
            "bridge_peak_mib": round(int(peak.split()[1]) / 1024),
            "records_sent": sink.state.counts.consumed,
        }
    finally:
        reading.cancel()
        bridge.terminate()
        await bridge.wait()
