"""Servers behind nginx are added and removed, while other clients stay connected."""

import asyncio
import os
import signal
from pathlib import Path

import httpx
import pytest

from diem.process.ports import is_free
from tests.integration.deploy.clients import children_of, clients, put, put_when_possible, scale
from tests.integration.deploy.running import diem, fine, report_of, up
from tests.support.nginx import needs_nginx
from tests.support.patience import FACTOR, PATIENCE_S, until
from tests.support.required import in_cluster
from tests.support.running import alive
from tests.support.stalls import stalls

pytestmark = needs_nginx


async def test_scaling_does_not_disconnect_clients_of_other_servers(tmp_path: Path) -> None:
    async with up(tmp_path, "--mode", "x-broadcast", "--nginx", "--servers", "2") as running:
        nginx = running.pids()["nginx"]
        async with clients(running, 2) as (one, other):
            status = await running.until_status(
                lambda s: sum((e["report"] or {}).get("clients", 0) for e in s.values()) == 2
            )
            assert [report_of(status, f"websocket-{number}")["clients"] for number in (1, 2)] == [1, 1]

            both = {"data", "broadcast", "nginx", "websocket-1"}
            assert await scale(running, 3) == both | {"websocket-2", "websocket-3"}
            assert one.closed == other.closed == []

            assert await scale(running, 1) == both
            await until(lambda: bool(one.closed or other.closed))
            moved, stayed = (one, other) if one.closed else (other, one)
            assert moved.closed == [1012]
            await running.until_status(lambda s: report_of(s, "websocket-1").get("clients") == 2)

            version = await put(running, 1)
            await until(lambda: version in stayed.versions and version in moved.versions)
            assert stayed.closed == []
        assert running.pids()["nginx"] == nginx
        assert not any("died" in line for line in running.output)


async def test_invalid_number_of_servers_is_a_one_line_error(tmp_path: Path) -> None:
    async with up(tmp_path, "--mode", "x-broadcast", "--servers", "1", "--max-servers", "2"):
        code, out, err = await diem("scale", "3", cwd=tmp_path)
        assert (code, out) == (1, "")
        assert err == "diem: cannot run 3 servers: the limit is 2 (`diem up --max-servers`)\n"


@in_cluster("it starts a system of its own")
async def test_killed_nginx_is_replaced_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async with up(tmp_path, "--mode", "x-broadcast", "--nginx", "--servers", "1") as running:
        port = running.described()["processes"][2]["ports"]["public"]
        master = running.pids()["nginx"]
        workers = children_of(master)
        assert workers
        async with clients(running, 1) as (client,):
            os.kill(master, signal.SIGKILL)
            await until(lambda: running.pids().get("nginx") not in {None, master})
            await until(lambda: not any(alive(pid) for pid in workers))
            await until(lambda: bool(client.closed))
            version = await put_when_possible(running, 1)
            await until(lambda: version in client.versions)
        status = await running.status()
        assert status["nginx"]["restarts"] == 1
    assert is_free(port)


@in_cluster("it starts a system of its own")
async def test_killed_diem_up_leaves_no_nginx_behind(tmp_path: Path) -> None:
    async with up(tmp_path, "--mode", "x-broadcast", "--nginx", "--servers", "1") as running:
        port = running.described()["processes"][2]["ports"]["public"]
        workers = children_of(running.pids()["nginx"])
        running.process.kill()
        await running.process.wait()
        await until(lambda: not any(alive(pid) for pid in workers))
        await until(lambda: is_free(port))  # the master goes after its workers


TOLD_S = 10.0 * FACTOR
ELSEWHERE_S = 15.0 * FACTOR
NEW_S = 5.0 * FACTOR


@pytest.mark.takes(20)
async def test_all_to_all_runs_several_servers_too_and_clients_of_one_that_hangs_are_elsewhere_in_time(
    tmp_path: Path,
) -> None:
    async with (
        up(tmp_path, "--mode", "all-to-all", "--nginx", "--servers", "2") as running,
        clients(running, 2) as both,
    ):
        status = await running.until_status(fine)
        assert list(status) == ["data", "nginx", "websocket-1", "websocket-2"]
        assert [report_of(status, f"websocket-{number}")["clients"] for number in (1, 2)] == [1, 1]
        version = await put(running, 1)
        await until(lambda: all(version in client.versions for client in both))

        pid, loop = running.pids()["websocket-1"], asyncio.get_running_loop()
        async with stalls() as counted:
            os.kill(pid, signal.SIGSTOP)
            began = loop.time()
            async with clients(running, 1):
                assert loop.time() - began - counted.seconds < NEW_S, "a new client waits for it"
            await until(lambda: any(client.closed for client in both))
            assert loop.time() - began - counted.seconds < TOLD_S
            (moved,) = [client for client in both if client.closed]
            await until(lambda: moved.subscribed == 2)
            assert loop.time() - began - counted.seconds < ELSEWHERE_S
        # The state ends: it is replaced.
        await until(lambda: running.pids().get("websocket-1") not in {None, pid})
        await running.until_status(fine)
        assert any("websocket-1 hung for" in line for line in running.output)
        assert [len(client.closed) for client in both if client is not moved] == [0]


async def test_nginx_exposes_pages_and_data_and_nothing_internal(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "mine.js").write_text("first")
    async with up(tmp_path, "--mode", "x-broadcast", "--nginx", "--servers", "1", "--pages", "pages") as running:
        described = running.described()
        page = described["urls"]["page"].replace("127.0.0.1", "localhost")
        internal = next(p["urls"]["internal"] for p in described["processes"] if p["name"] == "data")
        key = {"Authorization": f"Bearer {(tmp_path / '.diem' / 'internal.key').read_text().strip()}"}
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
            assert (await http.get(f"{page}v1/endpoints")).status_code == 200
            servers = (await http.get(f"{page}config.json")).json()["servers"]
            assert servers == [{"port": httpx.URL(page).port, "path": "/ws", "href": "ws"}]
            for path in ("metrics", "status", "feed", "livez", "readyz"):
                assert (await http.get(f"{page}{path}", headers=key)).status_code == 404
            assert (await http.get(f"{internal}/status", headers=key)).status_code == 200
            spoofed = await http.get(f"{page}v1/endpoints", headers={"Host": "evil.example"})
            assert spoofed.status_code in {400, 403, 421}
            mine = await http.get(f"{page}mine.js")
            assert (mine.text, mine.headers["cache-control"]) == ("first", "no-store")
            (pages / "mine.js").write_text("second")
            assert (await http.get(f"{page}mine.js")).text == "second"


@in_cluster("it starts a system of its own")
async def test_setting_for_one_process_reaches_only_that_process(tmp_path: Path) -> None:
    setting = "websocket-2:DIEM_WEBSOCKET_FEED_URL=ws://127.0.0.1:9/feed"
    code, out, err = await diem(
        *("up", "--free-ports", "--mode", "x-broadcast", "--set", "websocket-2:DIEM_NONSENSE=1", "--quiet"),
        *("--time-factor", "20"),  # else a slow machine's processes are named that are not ready yet
        cwd=tmp_path,
    )
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "websocket-2 does not start: DIEM_NONSENSE: no such setting" in err
    async with up(tmp_path, "--mode", "x-broadcast", "--servers", "1", "--set", setting) as running:
        code, _, err = await diem("scale", "2", "--time-factor", "0.1", cwd=tmp_path)
        # A process that does not answer the last request for its status in time is named as well.
        assert (code, err.startswith("diem: not done after 6 s: ")) == (1, True), err
        assert "websocket-2" in err
        await running.until_status(lambda s: bool(report_of(s, "websocket-1").get("live")))
