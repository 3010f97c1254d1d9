"""Processes run from the image with a read-only root, without capabilities, as the user of the image."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

from diem import __version__
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port

IMAGE: Final = os.environ.get("DIEM_IMAGE", "")
pytestmark = pytest.mark.skipif(not IMAGE or shutil.which("podman") is None, reason="needs an image: make image-test")
USER: Final = 10001
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


def test_data_service_and_server_are_ready_and_stop_when_asked(podman: Callable[..., list[str]], folder: Path) -> None:
    subprocess.run(podman("keys", "internal", "/var/lib/diem"), check=True)
    assert (folder / "internal.key").stat().st_uid == USER
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


def test_version_is_that_of_the_repository(podman: Callable[..., list[str]]) -> None:
    done = subprocess.run(podman("--version"), check=True, capture_output=True, text=True)
    assert done.stdout.strip() == f"diem {__version__}"


def test_kafka_and_postgresql_can_be_used(podman: Callable[..., list[str]]) -> None:
    command = ["-c", "import aiokafka, asyncpg, cramjam, uvloop"]
    *argv, image = podman()
    subprocess.run([*argv, "--entrypoint", "/opt/diem/bin/python", image, *command], check=True)
