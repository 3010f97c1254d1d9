"""Processes run from the image with a read-only root, without capabilities, as the user of the image."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from diem import __version__
from diem.kafka.config import KafkaOptions
from tests.image.containers import IMAGE, USER, gets_an_update, let_others_pass, needs_image, podman_run, until_ready
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

pytestmark = needs_image


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory of the image's user."""
    own = tmp_path / "state"
    own.mkdir(mode=0o700)
    os.chown(own, USER, USER)
    let_others_pass(own)
    return own


@pytest.fixture
def podman(tmp_path: Path, folder: Path) -> Callable[..., list[str]]:
    """Return a function that returns the command line of a container."""

    def argv(*arguments: str, **variables: object) -> list[str]:
        given = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
        state = ["--network", "host", "--memory", "512m", "--volume", f"{folder}:/var/lib/diem"]
        return [*podman_run(tmp_path), *state, *given, IMAGE, *arguments]

    return argv


@pytest.fixture
def keys(podman: Callable[..., list[str]], folder: Path) -> Path:
    """Return the directory, with the keys of a system."""
    subprocess.run(podman("keys", "internal", "/var/lib/diem"), check=True)
    assert (folder / "internal.key").stat().st_uid == USER
    return folder


@contextmanager
def running(argv: list[str]) -> Iterator[None]:
    """Run a container while the block runs; then it stops when it is asked to."""
    process = subprocess.Popen(argv)
    try:
        yield
    finally:
        # Not killed: the container would go on without podman.
        process.terminate()
        code = process.wait(PATIENCE_S)
    assert code == 0


@pytest.mark.usefixtures("keys")
async def test_data_service_and_server_are_ready_and_stop_when_asked(podman: Callable[..., list[str]]) -> None:
    page, feed, health, other, clients, internal = (free_port() for _ in range(6))
    data = {"DIEM_DATA_PORT": page, "DIEM_DATA_INTERNAL_PORT": feed, "DIEM_HEALTH_PORT": health}
    server = {
        "DIEM_WEBSOCKET_FEED_URL": f"ws://127.0.0.1:{feed}/feed",
        "DIEM_WEBSOCKET_PORT": clients,
        "DIEM_WEBSOCKET_INTERNAL_PORT": internal,
        "DIEM_HEALTH_PORT": other,
    }
    with running(podman("run", "data", **data)), running(podman("run", "websocket", **server)):
        await until_ready(health)
        await until_ready(other)
        async with httpx.AsyncClient(trust_env=False) as http:
            assert "<title>" in (await http.get(f"http://127.0.0.1:{page}/")).text


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
            stack.enter_context(running(podman("run", process, DIEM_HEALTH_PORT=port, **own)))
            await until_ready(port)
        await gets_an_update(page, clients, (keys / "write.key").read_text().strip())


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
    command = ["-c", "import aiokafka, asyncpg, cramjam, psycopg2, uvloop"]
    *argv, image = podman()
    subprocess.run([*argv, "--entrypoint", "/opt/diem/bin/python", image, *command], check=True)
