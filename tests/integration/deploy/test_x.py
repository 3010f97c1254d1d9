"""Mode x as a user starts it, with real Data Service, Kafka, bridges and servers that share a port."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from tests.integration.deploy.clients import Client, clients, put, scale
from tests.integration.deploy.running import Running, diem, fine, report_of, up
from tests.integration.deploy.scraping import check_scrapes
from tests.support.patience import FACTOR, until
from tests.support.required import in_cluster
from tests.support.running import alive
from tests.support.stalls import stalls

pytestmark = pytest.mark.usefixtures("kafka_program")

X = ("--mode", "x", "--partitions", "4")
BASE = {"kafka-1", "data"}
LAST = 100
"""Value of the last update that is written before the second start."""
TOLD_S = 15.0
"""Clients are told within this time that Kafka hangs."""
HANGS_S = 17.0
"""For at least this time it does: longer than sessions of the bridges' group."""


@in_cluster("it starts brokers, and Kafka hangs for a while")
@pytest.mark.takes(80)
async def test_mode_x_recovers_keeps_its_data_scales_and_stops_in_order(tmp_path: Path) -> None:
    async with up(tmp_path, *X, "--servers", "1") as running:
        async with clients(running, 1) as (client,):
            await killed_processes_recover_and_updates_written_meanwhile_arrive(running, client)
            await clients_are_told_that_kafka_hangs_and_get_what_was_written_meanwhile(running, client)
        version = await put(running, LAST)
        await children_end_with_it_when_it_is_killed(running)
    code, _, err = await diem("up", "--mode", "x", "--free-ports", "--brokers", "3", cwd=tmp_path)
    assert (code, err.count("\n")) == (2, 1), "the number of brokers cannot change under the data"
    assert "is of one broker, not of 3 brokers" in err
    async with up(tmp_path, *X, "--servers", "2") as running:
        names = ["kafka-1", "data", "bridge-1", "bridge-2", "websocket-1", "websocket-2"]
        assert list(running.pids()) == names
        async with clients(running, 2) as (one, other):
            # Everything was killed at once, maybe before the record was in Kafka: then it is written again, from the
            # store.
            await one.sees(version)
            await its_size_is_measured_and_a_single_broker_is_too_few(tmp_path)
            await it_scales_up_and_down(running, one, other)
        await it_stops_in_order(running)


async def killed_processes_recover_and_updates_written_meanwhile_arrive(running: Running, client: Client) -> None:
    for value, name in enumerate(("kafka-1", "data")):
        await running.until_status(fine)
        before = running.pids()[name]
        os.kill(before, signal.SIGKILL)
        await replaced(running, name, before)
        if name == "data":
            await running.until_status(fine)
        version = await put(running, value)
        await client.sees(version)


async def clients_are_told_that_kafka_hangs_and_get_what_was_written_meanwhile(
    running: Running, client: Client
) -> None:
    """What is accepted meanwhile waits in the store."""
    await until(lambda: client.live)
    closed, loop = len(client.closed), asyncio.get_running_loop()
    broker, began = running.pids()["kafka-1"], loop.time()
    os.kill(broker, signal.SIGSTOP)
    try:
        async with stalls() as counted:
            version = await put(running, LAST - 1)
            await until(lambda: not client.live)
            assert loop.time() - began - counted.seconds < TOLD_S * FACTOR
        assert len(client.closed) == closed
        await asyncio.sleep(began + HANGS_S - loop.time())
        assert version not in client.versions
    finally:
        os.kill(broker, signal.SIGCONT)
    await client.sees(version)
    await until(lambda: client.live)


async def children_end_with_it_when_it_is_killed(running: Running) -> None:
    pids = running.pids().values()
    running.process.kill()
    await running.process.wait()
    await until(lambda: not any(alive(pid) for pid in pids))


async def its_size_is_measured_and_a_single_broker_is_too_few(directory: Path) -> None:
    code, out, err = await diem("size", "--json", cwd=directory)
    body = json.loads(out)
    figures = {name: each["value"] for name, each in body["figures"].items()}
    # For the loss of a broker three are needed; the only fault of this system.
    assert (code, [each["name"] for each in body["excesses"]]) == (1, ["replicas"]), err
    assert (figures["brokers"], figures["partitions"], figures["servers"], figures["groups"]) == (1, 4, 2, 2)
    # The topics of hot updates and of the partition map, at least.
    assert figures["other_partitions"] >= 2

    code, out, err = await diem("size", "--tolerate", "0", "--updates", "1000", cwd=directory)
    assert code == 0, err
    assert "For the loss of no broker: 1 replica, min.insync.replicas=1" in out


async def it_scales_up_and_down(running: Running, one: Client, other: Client) -> None:
    names = set(running.pids())
    version = await put(running, LAST + 1)
    await until(lambda: version in one.versions and version in other.versions)
    await check_scrapes(running)

    assert await scale(running, 3) == {*names, "bridge-3", "websocket-3"}
    assert one.closed == other.closed == []
    assert await scale(running, 1) == BASE | {"bridge-1", "websocket-1"}
    # The kernel has chosen their servers.
    await running.until_status(lambda status: report_of(status, "websocket-1").get("clients") == 2)
    assert {*one.closed, *other.closed} <= {1012}
    version = await put(running, LAST + 2)
    await until(lambda: version in one.versions and version in other.versions)


async def it_stops_in_order(running: Running) -> None:
    last = running.pids()
    running.process.send_signal(signal.SIGINT)
    await until(lambda: running.process.returncode is not None)
    assert running.process.returncode == 0
    assert not any(alive(pid) for pid in last.values())
    assert not any("was killed" in line for line in running.output), running.output
    # The Kafka client retries sends to a topic that has just been created, which is nothing to report.
    assert not any("NotLeader" in line for line in running.output), running.output


async def replaced(running: Running, name: str, before: int) -> None:
    await until(lambda: running.pids().get(name) not in {None, before})
