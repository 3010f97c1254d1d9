"""Mode x as a user starts it, with real Data Service, Kafka, bridges, servers and nginx."""

import os
import signal
from pathlib import Path

import pytest

from deploy.kafka.program import KafkaProgram
from tests.integration.deploy.clients import children_of, clients, put, scale
from tests.integration.deploy.running import Running, alive, diem, eventually, fine, up
from tests.integration.deploy.scraping import check_scrapes
from tests.support.nginx import needs_nginx

pytestmark = [needs_nginx, pytest.mark.usefixtures("kafka_program")]

BASE = {"kafka-1", "data", "nginx"}


async def test_mode_x_starts_scales_up_and_down_and_stops_in_order(tmp_path: Path, kafka_program: KafkaProgram) -> None:
    async with up(tmp_path, "--mode", "x", "--servers", "2") as running:
        names = ["kafka-1", "data", "bridge-1", "bridge-2", "nginx", "websocket-1", "websocket-2"]
        assert list(running.pids()) == names
        async with clients(running, 2) as (one, other):
            version = await put(running, 1)
            await eventually(lambda: version in one.versions and version in other.versions)
            await check_scrapes(running)

            assert await scale(running, 3) == {*names, "bridge-3", "websocket-3"}
            assert one.closed == other.closed == []
            assert await scale(running, 1) == BASE | {"bridge-1", "websocket-1"}
            await eventually(lambda: bool(one.closed or other.closed))
            moved, stayed = (one, other) if one.closed else (other, one)
            assert moved.closed == [1012]
            version = await put(running, 2)
            await eventually(lambda: version in one.versions and version in other.versions)
            assert stayed.closed == []

        last = running.pids()
        running.process.send_signal(signal.SIGINT)
        await eventually(lambda: running.process.returncode is not None)
        assert running.process.returncode == 0
        assert not any(alive(pid) for pid in last.values())
        assert not any("was killed" in line for line in running.output), running.output
        # The Kafka client retries sends to a topic that has just been created, which is nothing to report.
        assert not any("NotLeader" in line for line in running.output), running.output


@pytest.mark.takes(25)
async def test_killed_processes_recover_and_updates_written_meanwhile_arrive(tmp_path: Path) -> None:
    async with up(tmp_path, "--mode", "x", "--servers", "1") as running, clients(running, 1) as (client,):
        for value, name in enumerate(("bridge-1", "websocket-1", "kafka-1", "data")):
            await running.until_status(fine)
            before = running.pids()[name]
            os.kill(before, signal.SIGKILL)
            await replaced(running, name, before)
            if name == "data":
                await running.until_status(fine)
            version = await put(running, value)
            await client.sees(version)


async def test_children_end_with_a_killed_diem_up_and_the_next_one_keeps_the_data(tmp_path: Path) -> None:
    async with up(tmp_path, "--mode", "x", "--servers", "1") as running:
        version = await put(running, 1)
        pids = [*running.pids().values(), *children_of(running.pids()["nginx"])]
        running.process.kill()
        await running.process.wait()
        await eventually(lambda: not any(alive(pid) for pid in pids))
    async with up(tmp_path, "--mode", "x", "--servers", "1") as running, clients(running, 1) as (client,):
        # Everything was killed at once, maybe before the record was in Kafka: then it is written again, from the store.
        await client.sees(version)
    code, _, err = await diem("up", "--mode", "x", "--free-ports", "--brokers", "3", cwd=tmp_path)
    assert (code, err.count("\n")) == (2, 1), "the number of brokers cannot change under the data"
    assert "is of one broker, not of 3 brokers" in err


@pytest.mark.takes(25)
async def test_three_brokers_survive_the_loss_of_one(tmp_path: Path) -> None:
    async with (
        up(tmp_path, "--mode", "x", "--servers", "1", "--brokers", "3") as running,
        clients(running, 1) as (client,),
    ):
        assert {"kafka-1", "kafka-2", "kafka-3"} < set(running.pids())
        version = await put(running, 1)
        await client.sees(version)
        os.kill(running.pids()["kafka-2"], signal.SIGKILL)
        version = await put(running, 2)
        await client.sees(version)


async def replaced(running: Running, name: str, before: int) -> None:
    await eventually(lambda: running.pids().get(name) not in {None, before})
