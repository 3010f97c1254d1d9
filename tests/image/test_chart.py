"""The pods of the Helm chart, run from the image with what Kubernetes gives their containers; needs ``make chart``.

All pods share a network namespace, where the names of Services lead to this machine.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from diem.kafka.config import KafkaOptions
from diem.protocol.traffic import encode
from diem.traffic.kafka_sink import KafkaSink
from tests.chart.cases import HELM, Object, containers, objects, values
from tests.image.containers import (
    IMAGE,
    USER,
    gets_an_update,
    let_others_pass,
    needs_image,
    podman_run,
    until_ready,
)
from tests.support.hosts import Network, connect_here, listen_here
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.recorded_visitors import VISITORS, visits

pytestmark = [needs_image, pytest.mark.skipif(not HELM.exists(), reason="needs helm: make chart")]

SPARK_S: Final = 3 * PATIENCE_S
"""Longest time for a job of Spark."""
PAGE: Final = 8080
EDGES: Final = {"x-broadcast": 8101, "z-proxy": 8501, "xz": 8601}
"""Port of clients by mode."""
HEALTH: Final = {
    name: 7000 + n for n, name in enumerate(("data", "broadcast", "websocket", "metadata", "proxy", "composite"))
}
"""Of each process: pods have addresses of their own elsewhere, and the same port."""
POD: Final = {"POD_IP": "127.0.0.1"}


@pytest.mark.parametrize("mode", EDGES)
async def test_client_of_a_mode_gets_an_update(mode: str, kafka_options: KafkaOptions, tmp_path: Path) -> None:
    rendered = objects(given(mode, kafka_options))
    keys = keys_of(tmp_path)
    broker = int(kafka_options.bootstrap_servers.rpartition(":")[2])
    async with Network() as network, AsyncExitStack() as stack:
        pods = network.outside
        network.forward(await pods.listen(("127.0.0.1", broker)), partial(connect_here, broker))

        def outside(port: int) -> int:
            """Return the port of this machine that leads to one of the pods."""
            own = free_port()
            network.forward(listen_here(own), partial(pods.connect, ("127.0.0.1", port)))
            return own

        services = [each["metadata"]["name"] for each in rendered if each["kind"] == "Service"]
        network_of = ["--network", f"ns:/proc/{pods.process.pid}/ns/net"]
        network_of += [f"--add-host={name}:127.0.0.1" for name in services]
        started = []
        for workload in workloads(rendered):
            folder = tmp_path / workload["metadata"]["name"]
            folder.mkdir()
            for container in containers(workload["spec"]["template"]["spec"]):
                argv = command(folder, keys, workload, container, network_of)
                await stack.enter_async_context(running(argv))
                started.append(container["name"])
        for process in started:
            if process in HEALTH:
                await until_ready(outside(HEALTH[process]))
        await gets_an_update(outside(PAGE), outside(EDGES[mode]), (keys / "write.key").read_text().strip())


@pytest.mark.skipif(not IMAGE.endswith("-spark"), reason="needs the image with Spark: make image-test SPARK=1")
async def test_job_of_the_pipeline_reads_the_traffic_in_kafka(kafka_options: KafkaOptions, tmp_path: Path) -> None:
    sink = KafkaSink(kafka_options, "websocket-9")
    await sink.write([encode(event) for event in visits(time.time_ns() // 1_000_000)])
    await sink.close()
    recorded = {"traffic": {"sink": "kafka"}, "pipeline": {"enabled": True}}
    rendered = objects(values("z-proxy", kafka=kafka_values(kafka_options), **recorded))
    (job,) = [each for each in rendered if each["kind"] == "CronJob"]
    workload = {**job, **job["spec"]["jobTemplate"]}
    (container,) = containers(workload["spec"]["template"]["spec"])
    argv = command(tmp_path, keys_of(tmp_path / "secret"), workload, container, ["--network", "host"])
    process = await asyncio.create_subprocess_exec(*argv, stdout=PIPE)
    printed, _ = await asyncio.wait_for(process.communicate(), SPARK_S)
    assert process.returncode == 0
    assert f"{VISITORS} " in printed.decode()


def kafka_values(options: KafkaOptions) -> Object:
    """Return the values with which pods find the broker."""
    return {"bootstrapServers": options.bootstrap_servers, "topicPrefix": options.topic_prefix, "partitions": 4}


def given(mode: str, options: KafkaOptions) -> Object:
    """Return the values of a mode with one replica of everything."""
    own: dict[str, Object] = {name: {"env": {"DIEM_HEALTH_PORT": str(port)}} for name, port in HEALTH.items()}
    for name in ("websocket", "proxy", "composite"):
        own[name]["replicas"] = 1
    access = {"anonymous": "on", "anonymousReads": "on"}
    return values(mode, url="http://localhost", access=access, kafka=kafka_values(options), drainSeconds=2, **own)


def workloads(rendered: list[Object]) -> Iterator[Object]:
    """Yield what has pods, the Data Service first."""
    found = [each for each in rendered if "template" in each.get("spec", {})]
    yield from sorted(found, key=lambda each: not each["metadata"]["name"].endswith("-data"))


def keys_of(folder: Path) -> Path:
    """Return a directory with the files of the Secret."""
    folder.mkdir(exist_ok=True)
    made = folder / "keys"
    make = [sys.executable, "-m", "deploy", "keys", "internal", str(made), "--roles"]
    subprocess.run(make, check=True, capture_output=True)
    let_others_pass(made / "any")
    return made


def command(folder: Path, keys: Path, workload: Object, container: Object, network: list[str]) -> list[str]:
    """Return the command line of a container with its variables, arguments, limits and volumes."""
    assert container["securityContext"]["readOnlyRootFilesystem"]
    # As in Kubernetes, nothing but volumes can be written: no /run, no /var/tmp.
    options = [*network, "--read-only-tmpfs=false", "--memory", container["resources"]["limits"]["memory"].rstrip("i")]
    pod = {**POD, "POD_NAME": f"{workload['metadata']['name']}-0"}
    for variable in container["env"]:
        value = variable.get("value", pod.get(variable["name"]))
        for name, own in pod.items():
            value = value.replace(f"$({name})", own)
        options += ["--env", f"{variable['name']}={value}"]
    volumes = {each["name"]: each for each in workload["spec"]["template"]["spec"]["volumes"]}
    for mount in container["volumeMounts"]:
        place = volume(folder, keys, volumes.get(mount["name"], {}), mount["name"])
        options += ["--volume", f"{place}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}"]
    return [*podman_run(folder, *options), IMAGE, *container["args"]]


def volume(folder: Path, keys: Path, described: Object, name: str) -> Path:
    """Return the directory of a volume, with the rights that ``fsGroup`` gives it."""
    place = folder / name
    if place.exists():
        return place
    place.mkdir()
    for source in described.get("projected", {}).get("sources", []):
        for item in source["secret"]["items"]:
            file = shutil.copy(keys / item["key"], place / item["path"])
            os.chown(file, 0, USER)
            file.chmod(described["projected"]["defaultMode"])
    os.chown(place, 0, USER)
    place.chmod(0o2777 if "emptyDir" in described else 0o2775)
    let_others_pass(place)
    return place


@asynccontextmanager
async def running(argv: list[str]) -> AsyncIterator[None]:
    """Run a container while the block runs; then it stops when it is asked to."""
    process = await asyncio.create_subprocess_exec(*argv)
    try:
        yield
    finally:
        # Not killed: the container would go on without podman.
        with suppress(ProcessLookupError):
            process.terminate()
        code = await asyncio.wait_for(process.wait(), PATIENCE_S)
    assert code == 0
