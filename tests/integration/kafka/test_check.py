"""`diem check` and `diem topics` as a user runs them, against a real broker."""

import asyncio
import json
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from diem.kafka.client import connected_client
from diem.kafka.config import KafkaOptions
from diem.kafka.metadata import describe
from diem.kafka.topics import TopicSpec, create, ensure, settings_in_force, specs, updates_spec
from tests.support.patience import FACTOR
from tests.support.topics import alter_topic

ROOT = Path(__file__).parents[3]
WITHIN_S = 15.0


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rules(self) -> dict[str, list[str]]:
        """Names of the rules by verdict, from JSON."""
        by_verdict: dict[str, list[str]] = {"fault": [], "warning": [], "ok": []}
        for finding in json.loads(self.out)["findings"]:
            by_verdict[finding["verdict"]].append(finding["rule"])
        return by_verdict

    def finding(self, rule: str) -> dict[str, Any]:
        found: dict[str, Any] = next(each for each in json.loads(self.out)["findings"] if each["rule"] == rule)
        return found


async def diem(directory: Path, *arguments: str, **variables: str) -> Said:
    env = {name: value for name, value in os.environ.items() if not name.startswith("DIEM_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy", *arguments,
        cwd=directory, env=env | {"PYTHONPATH": str(ROOT), **variables},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode is not None
    return Said(process.returncode, out.decode(), err.decode())


def where(options: KafkaOptions) -> dict[str, str]:
    return {
        "DIEM_KAFKA_BOOTSTRAP_SERVERS": options.bootstrap_servers,
        "DIEM_KAFKA_TOPIC_PREFIX": options.topic_prefix,
    }


@pytest.fixture
def options(kafka_options: KafkaOptions) -> KafkaOptions:
    return replace(kafka_options, partitions=12)


async def test_one_broker_is_a_fault_unless_no_loss_is_tolerated(options: KafkaOptions, tmp_path: Path) -> None:
    await ensure(options)
    strict = await diem(tmp_path, "check", "--json", **where(options))
    assert strict.code == 1
    assert {"replication", "min in sync"} <= set(strict.rules["fault"])
    relaxed = await diem(tmp_path, "check", "--tolerate", "0", "--json", **where(options))
    assert relaxed.code == 0, relaxed.out
    assert (relaxed.rules["fault"], relaxed.rules["warning"]) == ([], [])
    assert relaxed.err == ""
    assert len(relaxed.rules["ok"]) >= 20


async def test_the_text_report_lists_faults_first(options: KafkaOptions, tmp_path: Path) -> None:
    await ensure(options)
    result = await diem(tmp_path, "check", **where(options))
    assert result.code == 1
    assert result.out.index("faults") < result.out.index("replication") < result.out.index(" OK\n")
    assert f"--delete --topic {options.names.updates}" in result.out


async def test_a_topic_with_deletion_and_few_partitions_is_reported_and_its_command_corrects_it(
    options: KafkaOptions, tmp_path: Path
) -> None:
    good = updates_spec(options, 1)
    wrong = {**good.config, "cleanup.policy": "compact,delete"}
    await create(options, TopicSpec(good.name, 5, 1, wrong), *specs(options, 1)[1:])
    result = await diem(tmp_path, "check", "--tolerate", "0", "--json", **where(options))
    assert result.code == 1
    assert result.rules["fault"] == ["cleanup policy", "enough partitions"]

    (command,) = result.finding("cleanup policy")["commands"]
    (change,) = after(command, "--add-config")
    config = {**wrong, **dict([change.split("=", 1)])}
    await alter_topic(options, good.name, config)
    mended = await diem(tmp_path, "check", "--tolerate", "0", "--json", "--planned", "1,5", **where(options))
    assert (mended.code, mended.rules["fault"]) == (0, []), mended.out


async def test_a_missing_topic_is_a_fault_of_its_own(options: KafkaOptions, tmp_path: Path) -> None:
    result = await diem(tmp_path, "check", "--tolerate", "0", "--json", **where(options))
    assert (result.code, result.rules["fault"]) == (1, ["topic"])


@pytest.fixture(params=["refuses", "is silent"])
def nowhere(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port where nothing listens, or where connections are accepted and never answered."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        if request.param == "refuses":
            server.close()
        yield port


@pytest.mark.parametrize("command", ["check", "topics"])
async def test_a_cluster_that_does_not_answer_is_one_line_in_time(nowhere: int, command: str, tmp_path: Path) -> None:
    begun = time.monotonic()
    await diem(tmp_path, command, "--help")
    started = time.monotonic()
    result = await diem(tmp_path, command, "--bootstrap-servers", f"127.0.0.1:{nowhere}")
    # Less the start of any command, which also measures how slow the machine is today.
    assert time.monotonic() - started < WITHIN_S * FACTOR + 3 * (started - begun)
    assert (result.code, result.out) == (1, "")
    (line,) = result.err.splitlines()
    assert line.startswith(f"diem: Kafka at 127.0.0.1:{nowhere}: ")


async def test_without_a_cluster_the_command_names_the_option(tmp_path: Path) -> None:
    result = await diem(tmp_path, "check")
    assert result.code == 2
    assert "--bootstrap-servers" in result.err
    assert len(result.err.splitlines()) == 1


async def test_the_brokers_of_a_diem_up_are_found_in_its_state_directory(options: KafkaOptions, tmp_path: Path) -> None:
    await ensure(options)
    brokers = [{"name": f"kafka-{n}", "process": "kafka"} for n in (1, 2)]
    kafka = {"bootstrap_servers": options.bootstrap_servers, "topic_prefix": options.topic_prefix}
    password = tmp_path / ".diem" / "kafka" / "users" / "check.password"
    password.parent.mkdir(parents=True)
    password.write_text("x" * 43)
    password.chmod(0o600)
    (tmp_path / ".diem" / "processes.json").write_text(
        json.dumps({"mode": "z-client", "servers": 5, "clones": 1, "processes": brokers, "kafka": kafka})
    )
    # The brokers of these tests have no users.
    result = await diem(tmp_path, "check", "--tolerate", "0", "--json", DIEM_KAFKA_SECURITY_PROTOCOL="PLAINTEXT")
    assert result.rules["fault"] == ["brokers"]
    assert result.finding("brokers")["found"] == "1 broker up; missing: 2"
    # The servers that run are planned for, and the line starts them again.
    assert "5: the busiest has 1.25 x the mean" in result.finding("even shares")["found"]
    (line,) = result.finding("even shares")["commands"]
    assert line.endswith("up --mode z-client --servers 5 --brokers 2 --partitions 24")


async def test_topics_are_created_once_and_compared_after(options: KafkaOptions, tmp_path: Path) -> None:
    names, sizes = options.names.topics, ("12 partitions", "1 partition", "1 partition")
    first = await diem(tmp_path, "topics", **where(options))
    made = [f"{name}: created ({size}, 1 replica)" for name, size in zip(names, sizes, strict=True)]
    assert (first.code, first.out.splitlines()) == (0, made)
    second = await diem(tmp_path, "topics", **where(options))
    assert (second.code, second.out.splitlines()) == (0, [line.replace("created", "OK") for line in made])
    other = await diem(tmp_path, "topics", "--partitions", "7", **where(options))
    assert other.code == 2
    assert "it has 12 partitions, 7 are configured" in other.err


async def test_the_topic_of_recorded_traffic_is_created_on_request(options: KafkaOptions, tmp_path: Path) -> None:
    name = options.names.traffic
    without = await diem(tmp_path, "topics", **where(options))
    assert name not in without.out
    for _ in range(2):
        result = await diem(tmp_path, "topics", "--traffic", **where(options))
        assert (result.code, result.out.splitlines()[-1]) == (0, f"{name}: OK (12 partitions)")


async def test_topics_made_from_the_printed_lines_are_accepted(options: KafkaOptions, tmp_path: Path) -> None:
    result = await diem(tmp_path, "topics", "--print", "--partitions", "8", "--replication", "1", **where(options))
    assert result.code == 0
    wanted = specs(options, 1)
    assert max(map(len, result.out.splitlines())) <= 80
    # As a shell joins them.
    lines = result.out.replace("\\\n", "").splitlines()
    for line in (each for each in lines if each.startswith("kafka-topics.sh")):
        words = shlex.split(line)
        assert words[:4] == ["kafka-topics.sh", "--bootstrap-server", options.bootstrap_servers, "--create"]
        (name,), (count,), (copies,) = (after(line, o) for o in ("--topic", "--partitions", "--replication-factor"))
        config = dict(text.split("=", 1) for text in after(line, "--config"))
        await create(options, TopicSpec(name, int(count), int(copies), config))
    # Accepts them, and returns only once the broker knows them all.
    await ensure(replace(options, partitions=8))
    async with connected_client(options) as client:
        cluster = await describe(client, *options.names.topics)
        (in_force,) = await settings_in_force(client, *options.names.topics)
    assert [len(cluster.topics[each.name].partitions) for each in wanted] == [8, 1, 1]
    for each in wanted:
        assert {key: in_force[each.name][key] for key in each.config} == dict(each.config)


async def test_lines_are_printed_without_any_cluster(tmp_path: Path) -> None:
    result = await diem(tmp_path, "topics", "--print", "--principal", "data=alice")
    assert (result.code, result.err) == (0, "")
    assert "--bootstrap-server BROKER:9092" in result.out
    assert "--allow-principal User:alice --operation Write" in " ".join(result.out.replace("\\\n", "").split())


def after(line: str, option: str) -> list[str]:
    return [value for word, value in pairwise(shlex.split(line)) if word == option]
