"""`diem size` as a user runs it beside a `diem up` with Kafka."""

import json
from pathlib import Path

import pytest

from deploy.kafka.program import KafkaProgram
from tests.integration.deploy.running import diem, up
from tests.support.nginx import needs_nginx

pytestmark = needs_nginx


@pytest.mark.takes(15)
async def test_size_of_a_running_system_is_measured_and_a_single_broker_is_too_few(
    tmp_path: Path, kafka_program: KafkaProgram
) -> None:
    async with up(tmp_path, "--mode", "x", "--servers", "1"):
        code, out, err = await diem("size", "--json", cwd=tmp_path)
        body = json.loads(out)
        figures = {name: each["value"] for name, each in body["figures"].items()}
        # For the loss of a broker three are needed; the only fault of this system.
        assert (code, [each["name"] for each in body["excesses"]]) == (1, ["replicas"]), err
        assert (figures["brokers"], figures["partitions"], figures["servers"], figures["groups"]) == (1, 12, 1, 1)
        # The topics of hot updates and of the partition map, at least.
        assert figures["other_partitions"] >= 2
        assert figures["endpoints"] > 0

        code, out, err = await diem("size", "--tolerate", "0", "--updates", "1000", cwd=tmp_path)
        assert code == 0, err
        assert "For the loss of no broker: 1 replica, min.insync.replicas=1" in out
