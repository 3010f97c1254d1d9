import asyncio
import json
import os
import signal
import socket
from pathlib import Path

import pytest

from tests.integration.deploy.running import DIEM, diem, environment, fine, report_of, up
from tests.integration.deploy.scraping import check_scrapes
from tests.support.nginx import needs_nginx
from tests.support.patience import FACTOR, PATIENCE_S, until
from tests.support.running import alive
from tests.support.stalls import stalls

MODES = {
    "single": ["data", "websocket-1"],
    "all-to-all --nginx": ["data", "nginx", "websocket-1"],
    "x-broadcast": ["data", "broadcast", "websocket-1", "websocket-2"],
}
ENDED_S = 2.0 * FACTOR
CSV = b"time,value\n2026-01-01T00:00:00Z,1\n"
DECLARED = ("--type", "csv", "--unit", "MW", "--resolution", "PT1H")


@pytest.mark.parametrize("mode", ["single", pytest.param("all-to-all --nginx", marks=needs_nginx), "x-broadcast"])
async def test_processes_of_a_mode_start_restart_when_killed_and_stop_in_order(tmp_path: Path, mode: str) -> None:
    async with up(tmp_path, "--mode", *mode.split()) as running:
        before = running.pids()
        assert list(before) == MODES[mode]
        await until(lambda: any("Page" in line and "http://localhost:" in line for line in running.output))
        await running.until_status(fine)

        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        await until(
            lambda: len(after := running.pids()) == len(before) and not set(after.values()) & set(before.values())
        )
        status = await running.until_status(fine)
        await check_scrapes(running)
        assert {entry["restarts"] for entry in status.values()} == {1}
        await until(lambda: sum("restarted at once" in line for line in running.output) == len(before))
        await until(lambda: sum("is ready again" in line for line in running.output) == len(before))

        last = running.pids()
        running.process.send_signal(signal.SIGINT)
        await until(lambda: running.process.returncode is not None)
        assert running.process.returncode == 0
        assert not any(alive(pid) for pid in last.values())
    assert not (tmp_path / ".diem" / "processes.json").exists()
    assert not (tmp_path / ".diem" / "control.sock").exists()
    assert running.output[-1] == "stopped"


@needs_nginx
async def test_children_end_within_two_seconds_of_a_killed_diem_up_and_the_next_one_starts(tmp_path: Path) -> None:
    # A mode with every kind of process of the others above.
    async with up(tmp_path, "--mode", "x-broadcast", "--nginx") as running:
        children, loop = running.pids(), asyncio.get_running_loop()
        async with stalls() as counted:
            running.process.kill()
            began = loop.time()
            await running.process.wait()
            await until(lambda: not any(alive(pid) for pid in children.values()))
            assert loop.time() - began - counted.seconds < ENDED_S
    code, _, err = await diem("status", cwd=tmp_path)
    assert (code, err.count("\n")) == (1, 1)
    assert "diem is not up in" in err
    async with up(tmp_path) as running:
        assert await running.status()


async def test_watch_prints_updates_of_an_endpoint_that_did_not_exist(tmp_path: Path) -> None:
    async with up(tmp_path):
        watching = await asyncio.create_subprocess_exec(
            *DIEM,
            *("watch", "/my/endpoint", "--json"),
            cwd=tmp_path,
            env=environment(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert watching.stdout is not None
        assert watching.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            assert b"/my/endpoint is not in the catalogue" in await watching.stderr.readline()
            while json.loads(await watching.stdout.readline())["event"] != "subscribed":
                pass
            code, out, err = await diem("put", "/my/endpoint", "-", *DECLARED, cwd=tmp_path, stdin=CSV)
            assert code == 0, err
            version = int(out.split()[-1])
            assert err.endswith("?view=data&endpoint=/my/endpoint\n")
            while (event := json.loads(await watching.stdout.readline()))["event"] != "update":
                pass
            assert (event["endpoint"], event["version"]) == ("/my/endpoint", version)
            watching.send_signal(signal.SIGINT)
            assert await watching.wait() == 0
            await watching.communicate()

        code, out, _ = await diem("put", "/my/endpoint", "-", *DECLARED, cwd=tmp_path, stdin=CSV)
        assert (code, "unchanged" in out) == (0, True)
        bad = CSV + b"2026-01-01T01:00:00Z,much\n"
        code, _, err = await diem("put", "/my/endpoint", "-", *DECLARED, cwd=tmp_path, stdin=bad)
        assert (code, err.count("\n")) == (1, 1)
        assert "422" in err
        assert "line 3" in err
        code, out, _ = await diem("why", "/my/endpoint", cwd=tmp_path)
        assert code == 1
        assert "Cause  write: a write at " in out

        code, out, _ = await diem("get", "/my/endpoint", "--csv", cwd=tmp_path)
        assert (code, out.splitlines()[-1]) == (0, "2026-01-01T00:00:00Z,1")
        code, out, _ = await diem("delete", "/my/endpoint", "--yes", cwd=tmp_path)
        assert (code, out.startswith("/my/endpoint deleted as of version ")) == (0, True)
        code, out, _ = await diem("get", "/my/endpoint", "--version", str(version), cwd=tmp_path)
        assert (code, json.loads(out)["version"]) == (0, version)
        code, _, err = await diem("get", "/my/endpoint", cwd=tmp_path)
        assert (code, "/my/endpoint was not read (410)" in err) == (1, True)


SOURCES = """\
[[source]]
type = "simulation"
zones = ["GR"]

[[source]]
type = "directory"
name = "load"
path = "later"
prefix = "/later"
unit = "MW"
resolution = "PT1H"
"""


async def test_root_is_warned_and_failing_sources_are_named_once_it_is_up(tmp_path: Path) -> None:
    (tmp_path / "diem.toml").write_text(SOURCES)
    async with up(tmp_path) as running:
        await until(lambda: "DIEM is up" in "\n".join(running.output))
        failing = f"1 of 2 sources fails: load: no such directory: {tmp_path / 'later'} (`"
        await until(lambda: any(line.startswith(failing) for line in running.output))
        assert ("running as root" in "\n".join(running.output)) is (os.geteuid() == 0)
        status = await running.until_status(lambda now: bool(report_of(now, "data").get("sources")))
        load = report_of(status, "data")["sources"][1]
        assert (load["ok"], load["next_attempt"] is None) == (False, False)

        (tmp_path / "later").mkdir()
        (tmp_path / "later" / "gr.csv").write_bytes(CSV)
        await running.until_status(
            lambda now: [source["endpoints"] for source in report_of(now, "data").get("sources", ())][1:] == [1]
        )
        code, out, err = await diem("sources", "check", cwd=tmp_path)
        assert (code, err) == (0, "")
        assert "/later/gr" in out
        code, out, _ = await diem("keys", "create", "My page", "--plan", "standard", cwd=tmp_path)
        assert (code, out.startswith("diem_")) == (0, True)


async def test_second_up_reports_the_pid_of_the_first(tmp_path: Path) -> None:
    async with up(tmp_path) as running:
        code, _, err = await diem("up", cwd=tmp_path)
        assert code == 1
        assert f"diem is already up in {tmp_path}/.diem (process {running.process.pid})" in err


async def test_requested_port_in_use_is_a_one_line_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = await diem("up", "--free-ports", "--port", str(port), cwd=tmp_path)
    assert code == 1
    assert err == f"diem: port {port} on 127.0.0.1 is taken by another process\n"


async def test_state_directory_with_a_long_name_works(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    async with up(deep) as running:
        assert await running.status()
    assert not (deep / ".diem" / "control.path").exists()
