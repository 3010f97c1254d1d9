"""The connection against another implementation of RFC 6455, the ``ws`` package; its cases are in ``peer.mjs``."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from tests.conformance.echo import echo_server
from tests.support.patience import PATIENCE_S
from tests.support.required import unavailable
from tests.support.small import small_system

CLIENT = Path(__file__).parents[2] / "client"
PEER = Path(__file__).with_name("peer.mjs")
CASES = 33


@pytest.mark.takes(5)
async def test_an_independent_peer_finds_no_violation(tmp_path: Path) -> None:
    if not (CLIENT / "node_modules" / "ws").exists():
        unavailable("the ws package", FileNotFoundError("ws is not installed: npm ci in client/"))
    with echo_server() as echo:
        async with small_system(tmp_path) as system:
            system.feed.put("/retained")
            peer = await asyncio.create_subprocess_exec(
                "../deploy/install/node.sh",
                "node",
                "--test-reporter=tap",
                str(PEER),
                cwd=CLIENT,
                env={
                    **os.environ,
                    "DIEM_ECHO_URL": echo,
                    "DIEM_EDGE_URL": system.url,
                    "DIEM_PATIENCE_S": str(PATIENCE_S),
                },
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            output = (await peer.communicate())[0].decode()
    assert peer.returncode == 0, output
    # A run in which a case was left out ends well, too.
    assert re.search(rf"^# pass {CASES}$", output, re.MULTILINE), output
