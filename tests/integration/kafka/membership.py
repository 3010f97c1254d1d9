"""The metadata service in the test's own event loop, and members of the groups that it reads."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from diem.kafka.client import close_all
from diem.kafka.config import KafkaOptions
from diem.process.auth import SharedKey
from diem.process.lifecycle import Lifecycle
from diem.protocol.assignment import Owner, client_id, member_id
from metadata import main as metadata
from metadata.settings import Settings
from tests.support.internal import http_client
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

ORIGIN = "http://localhost:8080"


def server(number: int, port: int | None = None) -> Owner:
    """Return a server of a group; nothing listens there."""
    at = port or 20_000 + number
    return Owner(member_id(number), f"ws://127.0.0.1:{at}/ws", f"ws://public{number}.test:{at}/ws")


class Member:
    """A member of a clone's group that reads nothing."""

    def __init__(
        self,
        options: KafkaOptions,
        number: int,
        clone: int = 1,
        *,
        named: str | None = None,
        static: bool = False,
        learns_ms: int = 10_000,
    ) -> None:
        """``learns_ms`` is the longest delay until new partitions are detected."""
        self.server = server(number)
        self._consumer = AIOKafkaConsumer(
            options.names.updates,
            **options.client_arguments(),
            client_id=client_id(self.server) if named is None else named,
            group_id=options.names.z_group(clone),
            group_instance_id=self.server.server if static else None,
            partition_assignment_strategy=(RangePartitionAssignor,),
            session_timeout_ms=6000,
            heartbeat_interval_ms=300,
            metadata_max_age_ms=learns_ms,
            enable_auto_commit=False,
        )

    async def join(self) -> None:
        await self._consumer.start()

    @property
    def partitions(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    async def leave(self) -> None:
        """Leave the group at once; a static member stays in it until its session times out."""
        await self._consumer.stop()


@contextlib.asynccontextmanager
async def members(options: KafkaOptions, *numbers: int, clone: int = 1, **how: Any) -> AsyncIterator[list[Member]]:
    """Join members to a group."""
    made = [Member(options, number, clone, **how) for number in numbers]
    await asyncio.gather(*(each.join() for each in made))
    try:
        yield made
    finally:
        # The cluster may be away, and they shall not wait for it.
        await close_all(*(each.leave for each in made))


class Running:
    """A running metadata service."""

    def __init__(self, settings: Settings, key: SharedKey, life: Lifecycle) -> None:
        self.settings, self.key, self.life = settings, key, life
        self.locate_url = f"http://127.0.0.1:{settings.port}/v1/locate"
        self.partitions_url = f"ws://127.0.0.1:{settings.internal_port}/watch"

    async def ask(self, *names: str, clone: object = None, **headers: str) -> httpx.Response:
        body: dict[str, Any] = {"endpoints": list(names)} | ({} if clone is None else {"clone": clone})
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
            return await http.post(self.locate_url, json=body, headers=headers)

    async def locate(self, *names: str, clone: object = None) -> dict[str, Any]:
        answer = await self.ask(*names, clone=clone)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    async def owners(self, *names: str, clone: object = None) -> dict[str, str | None]:
        places = (await self.locate(*names, clone=clone))["endpoints"]
        return {name: place["owner"] for name, place in places.items()}

    async def get(self, path: str) -> httpx.Response:
        async with http_client(self.key) as http:
            return await http.get(f"http://127.0.0.1:{self.settings.internal_port}{path}")

    async def status(self) -> dict[str, Any]:
        result: dict[str, Any] = (await self.get("/status")).json()
        return result

    async def until_status(self, condition: Callable[[dict[str, Any]], bool], within: float = PATIENCE_S) -> float:
        """Wait until the status has these values; return the seconds that it took."""
        began = time.monotonic()
        async with asyncio.timeout(within):
            while not condition(await self.status()):
                await asyncio.sleep(0.02)
        return time.monotonic() - began

    async def until_stable(self, count: int, clone: int = 1, within: float = PATIENCE_S) -> float:
        """Wait until the group is stable with this number of members; return the seconds that it took."""

        def there(status: dict[str, Any]) -> bool:
            group = status["clones"][str(clone)]
            return bool(status["ready"] and group["state"] == "stable" and len(group["members"]) == count)

        return await self.until_status(there, within)


@contextlib.asynccontextmanager
async def serving(directory: Path, options: KafkaOptions, **settings: Any) -> AsyncIterator[Running]:
    """Run a metadata service for the groups of ``options``."""
    file = directory / "internal.key"
    key = SharedKey.load(file) if file.exists() else SharedKey.create(file)
    life = Lifecycle(2.0)
    made = Settings(
        internal_key_file=file,
        port=free_port(),
        internal_port=free_port(),
        drain_seconds=2,
        kafka_bootstrap_servers=options.bootstrap_servers,
        kafka_topic_prefix=options.topic_prefix,
        **settings,
    )
    running = Running(made, key, life)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(metadata.main(made, life))
        try:
            await _listening(running)
            yield running
        finally:
            life.stop("test is over")


async def _listening(running: Running) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(httpx.ConnectError):
                await running.status()
                return
            await asyncio.sleep(0.02)
