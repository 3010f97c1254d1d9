"""Processes run from the image with a read-only root, without capabilities, as the user of the image."""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import httpx
import orjson
import pytest

from diem import __version__
from diem.kafka.config import KafkaOptions
from diem.links.client import UpdatesClient
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

IMAGE: Final = os.environ.get("DIEM_IMAGE", "")
pytestmark = pytest.mark.skipif(not IMAGE or shutil.which("podman") is None, reason="needs an image: make image-test")
USER: Final = 10001
ENDPOINT: Final = "/image/one"
# crun and limits that root may not raise: neither is there on every machine.
CONTAINERS_CONF: Final = """[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory of the image's user."""
    own = tmp_path / "state"
    own.mkdir(mode=0o700)
    os.chown(own, USER, USER)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    return own


@pytest.fixture
def podman(tmp_path: Path, folder: Path) -> Callable[..., list[str]]:
    """Return a function that returns the command line of a container."""
    configuration = tmp_path / "containers.conf"
    configuration.write_text(CONTAINERS_CONF)

    def argv(*arguments: str, **variables: object) -> list[str]:
        given = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
        program = [
            "env",
            f"CONTAINERS_CONF={configuration}",
            "podman",
            "run",
            "--rm",
            "--network",
            "host",
            "--read-only",
        ]
        limits = ["--cap-drop", "all", "--security-opt", "no-new-privileges", "--memory", "512m"]
        return [*program, *limits, "--volume", f"{folder}:/var/lib/diem", *given, IMAGE, *arguments]

    return argv


@pytest.fixture
def keys(podman: Callable[..., list[str]], folder: Path) -> Path:
    """Return the directory, with the keys of a system."""
    subprocess.run(podman("keys", "internal", "/var/lib/diem"), check=True)
    assert (folder / "internal.key").stat().st_uid == USER
    return folder


@contextmanager
def running(argv: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(argv)
    try:
        yield process
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def until_ready(port: int, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + PATIENCE_S
    with httpx.Client(trust_env=False) as http:
        while True:
            try:
                if http.get(f"http://127.0.0.1:{port}/readyz").is_success:
                    return
            except httpx.TransportError:
                pass
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)


@pytest.mark.usefixtures("keys")
def test_data_service_and_server_are_ready_and_stop_when_asked(podman: Callable[..., list[str]]) -> None:
    page, feed, health, other, clients, internal = (free_port() for _ in range(6))
    data = {"DIEM_DATA_PORT": page, "DIEM_DATA_INTERNAL_PORT": feed, "DIEM_HEALTH_PORT": health}
    server = {
        "DIEM_WEBSOCKET_FEED_URL": f"ws://127.0.0.1:{feed}/feed",
        "DIEM_WEBSOCKET_PORT": clients,
        "DIEM_WEBSOCKET_INTERNAL_PORT": internal,
        "DIEM_HEALTH_PORT": other,
    }
    with running(podman("run", "data", **data)) as one, running(podman("run", "websocket", **server)) as two:
        until_ready(health, one)
        until_ready(other, two)
        assert "<title>" in httpx.get(f"http://127.0.0.1:{page}/", trust_env=False).text


async def test_update_reaches_a_client_through_kafka(
    podman: Callable[..., list[str]], keys: Path, kafka_options: KafkaOptions
) -> None:
    page, feed, clients, inside, *health = (free_port() for _ in range(7))
    kafka = {
        "DIEM_KAFKA_BOOTSTRAP_SERVERS": kafka_options.bootstrap_servers,
        "DIEM_KAFKA_TOPIC_PREFIX": kafka_options.topic_prefix,
        "DIEM_KAFKA_PARTITIONS": kafka_options.partitions,
    }
    settings: dict[str, dict[str, object]] = {
        "data": {"DIEM_DATA_PORT": page, "DIEM_DATA_INTERNAL_PORT": inside, "DIEM_DATA_MODE": "x", **kafka},
        "bridge": {"DIEM_BRIDGE_INTERNAL_PORT": feed, **kafka},
        "websocket": {
            "DIEM_WEBSOCKET_FEED_URL": f"ws://127.0.0.1:{feed}/feed",
            "DIEM_WEBSOCKET_PORT": clients,
            "DIEM_WEBSOCKET_INTERNAL_PORT": 0,
            "DIEM_WEBSOCKET_MODE": "x",
        },
    }
    with ExitStack() as stack:
        for port, (process, own) in zip(health, settings.items(), strict=True):
            started = stack.enter_context(running(podman("run", process, DIEM_HEALTH_PORT=port, **own)))
            until_ready(port, started)
        async with asyncio.timeout(PATIENCE_S), UpdatesClient(f"ws://127.0.0.1:{clients}/ws") as client:
            await client.subscribe({ENDPOINT: None})
            async for event in client:
                if event.kind == "subscribed":
                    version = await put(page, (keys / "write.key").read_text().strip())
                elif event.kind == "update":
                    assert (event.endpoint, event.version) == (ENDPOINT, version)
                    break


async def put(port: int, key: str) -> int:
    """Write a version of the endpoint, and return it."""
    points = [{"time": "2026-01-01T00:00:00Z", "value": 1}]
    body = {"datasets": [{"endpoint": ENDPOINT, "unit": "MW", "resolution": "PT1H", "points": points}]}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
        answer = await http.put(f"http://127.0.0.1:{port}/v1/data", content=orjson.dumps(body), headers=headers)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["accepted"][0]["version"])


def test_nothing_can_be_written_outside_of_the_state_and_no_right_be_gained(podman: Callable[..., list[str]]) -> None:
    probe = """
import errno, os
assert os.getuid() == os.getgid() == 10001
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
assert [int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd")] == [0, 0, 0]
assert status["NoNewPrivs"].strip() == "1"
for place in ("/opt/diem", "/etc", "/usr/bin"):
    try:
        os.mkdir(f"{place}/new")
    except OSError as error:
        assert error.errno in {errno.EROFS, errno.EACCES}, error
    else:
        raise AssertionError(place)
assert os.statvfs("/").f_flag & os.ST_RDONLY
open("/var/lib/diem/file", "w").close()
"""
    *argv, image = podman()
    subprocess.run([*argv, "--entrypoint", "/opt/diem/bin/python", image, "-c", probe], check=True)


def test_version_is_that_of_the_repository(podman: Callable[..., list[str]]) -> None:
    done = subprocess.run(podman("--version"), check=True, capture_output=True, text=True)
    assert done.stdout.strip() == f"diem {__version__}"


def test_kafka_and_postgresql_can_be_used(podman: Callable[..., list[str]]) -> None:
    command = ["-c", "import aiokafka, asyncpg, cramjam, uvloop"]
    *argv, image = podman()
    subprocess.run([*argv, "--entrypoint", "/opt/diem/bin/python", image, *command], check=True)
