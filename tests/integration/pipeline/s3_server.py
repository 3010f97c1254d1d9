"""An S3 service on loopback: the server of moto, as a process of its own. It keeps its objects in memory."""

import importlib.util
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.support.patience import PATIENCE_S
from tests.support.ports import free_ports


class NoServer(Exception):
    """Moto is not installed."""


class S3Server(NamedTuple):
    """The running service."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        """The standard variables by which clients find it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            # No other credentials of this machine.
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def create(self, bucket: str) -> None:
        """Create a bucket."""
        # The first request of all makes the service load what it serves, which takes seconds.
        httpx.put(f"{self.endpoint}/{bucket}", timeout=PATIENCE_S).raise_for_status()


@contextmanager
def s3_server(log: Path) -> Iterator[S3Server]:
    """Run a service, which writes to a log.

    Raises:
        NoServer: moto is not installed.
    """
    if importlib.util.find_spec("moto") is None:
        raise NoServer("moto is not installed")
    (port,) = free_ports(1)
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not _answers(port):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield S3Server(f"http://127.0.0.1:{port}")
        finally:
            process.kill()


def _answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
