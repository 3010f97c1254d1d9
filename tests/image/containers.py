"""Containers of the image, and what a client of them does; ``make image-test`` names the image."""

import asyncio
import os
import shutil
from pathlib import Path
from typing import Final

import httpx
import orjson
import pytest

from diem.client import UpdatesClient
from tests.support.patience import PATIENCE_S

IMAGE: Final = os.environ.get("DIEM_IMAGE", "")
needs_image = pytest.mark.skipif(not IMAGE or shutil.which("podman") is None, reason="needs an image: make image-test")
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


def podman_run(folder: Path, *options: str) -> list[str]:
    """Return the begin of the command line of a container without privileges; ``folder`` is one of the test."""
    configuration = folder / "containers.conf"
    configuration.write_text(CONTAINERS_CONF)
    program = ["env", f"CONTAINERS_CONF={configuration}", "podman", "run", "--rm", "--read-only"]
    return [*program, "--cap-drop", "all", "--security-opt", "no-new-privileges", *options]


def let_others_pass(path: Path) -> None:
    """Let the image's user reach a path below directories of the test."""
    for parent in path.parents:
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)


async def until_ready(port: int) -> None:
    """Wait until a health listener answers that its process is ready."""
    async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient(trust_env=False) as http:
        while True:
            try:
                if (await http.get(f"http://127.0.0.1:{port}/readyz")).is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)


async def gets_an_update(page: int, clients: int, write_key: str) -> None:
    """Subscribe at the port of clients, write at that of the page, and wait for the update."""
    version = None
    async with asyncio.timeout(PATIENCE_S), UpdatesClient(f"ws://127.0.0.1:{clients}/ws") as client:
        await client.subscribe({ENDPOINT: None})
        async for event in client:
            if event.kind == "subscribed":
                version = await _put(page, write_key)
            elif event.kind == "update":
                assert (event.endpoint, event.version) == (ENDPOINT, version)
                return
    raise AssertionError("the server does not want the client")


async def _put(port: int, key: str) -> int:
    """Write a version of the endpoint, and return it."""
    points = [{"time": "2026-01-01T00:00:00Z", "value": 1}]
    body = {"datasets": [{"endpoint": ENDPOINT, "unit": "MW", "resolution": "PT1H", "points": points}]}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
        answer = await http.put(f"http://127.0.0.1:{port}/v1/data", content=orjson.dumps(body), headers=headers)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["accepted"][0]["version"])
