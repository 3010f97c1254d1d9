"""Slots of nginx without a server: nobody else can listen there and get clients."""

import asyncio
import re
import socket
import sys
from pathlib import Path

import pytest

from tests.integration.deploy.clients import scale
from tests.integration.deploy.running import up
from tests.support.patience import PATIENCE_S


def open_to_others(port: int) -> bool:
    """Return whether another process could listen on the port now."""
    with socket.socket() as attacker:
        attacker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
        try:
            attacker.bind(("127.0.0.1", port))
            attacker.listen()
        except OSError:
            return False
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere reservations do not bind the port itself")
async def test_nobody_else_listens_where_nginx_would_send_clients(tmp_path: Path) -> None:
    async with up(tmp_path, "--mode", "x-broadcast", "--servers", "1", "--max-servers", "3") as running:
        configuration = (tmp_path / ".diem" / "nginx" / "nginx.conf").read_text()
        slots = [int(port) for port in re.findall(r"server 127\.0\.0\.1:(\d+) max_fails=0", configuration)][:3]
        assert len(slots) == 3
        # A port with lingering connections is guarded at a later attempt.
        async with asyncio.timeout(PATIENCE_S):
            while any(map(open_to_others, slots)):
                await asyncio.sleep(0.5)
        await scale(running, 2)
        await scale(running, 1)
        async with asyncio.timeout(PATIENCE_S):
            while any(map(open_to_others, slots)):
                await asyncio.sleep(0.5)
