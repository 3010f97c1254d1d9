"""Ports of a running system: nobody else gets one, and with it what clients send there."""

import os
import signal
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from diem.process.listeners import has_ipv6_loopback
from tests.integration.deploy.clients import scale
from tests.integration.deploy.running import fine, up
from tests.support.other_users import intruder
from tests.support.patience import PATIENCE_S, until
from tests.support.required import in_cluster

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel shares ports with other users")


@pytest.mark.takes(20)
@pytest.mark.parametrize(
    ("mode", "killed"),
    [
        pytest.param("x-broadcast --nginx", ("nginx", "data", "broadcast", "websocket-1"), marks=in_cluster()),
        ("x-broadcast", ("data", "websocket-1", "websocket-2")),
        ("single", ("data", "websocket-1")),
    ],
)
async def test_port_of_a_killed_process_is_nobody_elses(tmp_path: Path, mode: str, killed: tuple[str, ...]) -> None:
    async with up(tmp_path, "--mode", *mode.split()) as running:
        # Also those of servers that do not run: nginx would send clients there.
        ports = {
            port
            for process in running.described()["processes"]
            for port in process["ports"].values()
            if port is not None
        }
        assert ports
        with intruder(ports) as other:
            before = running.pids()
            for name in killed:
                os.kill(before[name], signal.SIGKILL)
            await until(lambda: all(running.pids().get(name) not in {None, before[name]} for name in killed))
            await running.until_status(fine)
            assert other.ports() == []


@pytest.mark.takes(10)
async def test_port_of_a_removed_server_is_nobody_elses(tmp_path: Path) -> None:
    async with up(tmp_path, "--mode", "x-broadcast", "--nginx", "--servers", "2", "--max-servers", "3") as running:
        slots = {int(text) for text in _slots(tmp_path)}
        assert len(slots) == 3
        with intruder(slots) as other:
            await scale(running, 1)
            await scale(running, 3)
            assert other.ports() == []


def _slots(directory: Path) -> list[str]:
    configuration = (directory / ".diem" / "nginx" / "nginx.conf").read_text()
    return [line.split(":")[1].split()[0] for line in configuration.splitlines() if "max_fails=0" in line][:3]


@pytest.mark.takes(10)
@pytest.mark.parametrize("mode", [pytest.param("single", marks=in_cluster()), "x-broadcast"])
async def test_page_and_servers_are_at_both_addresses_of_the_name_that_is_printed(tmp_path: Path, mode: str) -> None:
    if not has_ipv6_loopback():
        pytest.skip("no IPv6 here")
    async with up(tmp_path, "--mode", mode) as running:
        port = urlsplit(running.described()["urls"]["page"]).port
        await until(lambda: any(f"http://localhost:{port}/" in line for line in running.output))
        async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
            for host in ("127.0.0.1", "[::1]", "localhost"):
                for path in ("/", "/v1/endpoints"):
                    assert (await http.get(f"http://{host}:{port}{path}")).status_code == 200, host
                for server in (await http.get(f"http://{host}:{port}/config.json")).json()["servers"]:
                    answer = await http.get(f"http://{host}:{server['port']}{server['path']}")
                    assert answer.json()["code"] == "upgrade_required", host
