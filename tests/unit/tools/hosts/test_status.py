import asyncio
import json
from collections.abc import Callable, Collection
from pathlib import Path

import httpx
import pytest

from diem.links.internal import InternalListener
from diem.links.listener import Reply
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing
from tests.support.ports import free_port
from tools.hosts.status import NoSystem, hosts_client, read_status


def directory_of(folder: Path, *processes: tuple[str, str | None, str], spare: Collection[str] = ()) -> Path:
    (folder / "keys").mkdir()
    SharedKey.create(folder / "keys" / "metrics.key")
    described = [
        {
            "name": name,
            "process": name.partition("-")[0],
            "host": "b",
            "address": at,
            "urls": {"internal": internal},
            "spare": name in spare,
        }
        for name, internal, at in processes
    ]
    (folder / "system.json").write_text(json.dumps({"mode": "x", "processes": described}))
    return folder


async def test_processes_report_with_the_key_for_monitoring_and_those_that_are_gone_do_not(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    SharedKey.create(own / "internal.key")
    port, gone = free_port(), free_port()
    server, other, nginx = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{gone}", f"127.0.0.1:{port}"
    out = tmp_path / "out"
    out.mkdir()
    processes = [("websocket-1", server, nginx), ("bridge-1", other, nginx), ("nginx", None, nginx)]
    directory_of(
        out,
        *processes,
        ("websocket-3", server, nginx),
        ("websocket-4", other, nginx),
        spare={"websocket-3", "websocket-4"},
    )
    (own / "metrics.key").write_bytes((out / "keys" / "metrics.key").read_bytes())
    (own / "metrics.key").chmod(0o600)
    listener = InternalListener(
        "127.0.0.1",
        port,
        key=KeyRing.load(own / "internal.key"),
        ready=lambda: None,
        status=lambda: {"ready": True, "pid": 7, "uptime_seconds": 61.0, "clients": 3},
    )
    listener.start()
    try:
        found = {each["name"]: each for each in (await read_status(out))["processes"]}
    finally:
        listener.stop()
    assert found["websocket-1 on b"]["report"]["clients"] == 3
    assert (found["websocket-1 on b"]["pid"], found["websocket-1 on b"]["uptime_seconds"]) == (7, 61.0)
    assert found["bridge-1 on b"]["report"] is None
    assert found["nginx on b"]["state"] == "listening"
    # Of the spare servers, the one that somebody has started.
    assert found["websocket-3 on b"]["report"]["clients"] == 3
    assert "websocket-4 on b" not in found


async def test_each_host_is_asked_with_its_own_key_and_another_listener_not_at_all(tmp_path: Path) -> None:
    own = tmp_path / "hosts" / "b" / "keys"
    own.mkdir(parents=True)
    SharedKey.create(own / "internal.key")
    port = free_port()
    directory_of(tmp_path, ("websocket-1", f"http://127.0.0.1:{port}", ""))
    listener = InternalListener(
        *("127.0.0.1", port),
        key=KeyRing.load(own / "internal.key"),
        ready=lambda: None,
        status=dict,
        reads={"/v1/clients": lambda path: Reply(200, path.encode())},
    )
    listener.start()
    try:
        async with hosts_client(tmp_path, 3.0) as http:
            assert (await http.get(f"http://127.0.0.1:{port}/v1/clients/ab/load")).text == "/ab/load"
            with pytest.raises(httpx.ConnectError, match="own host alone"):
                await http.get(f"http://localhost:{port}/v1/clients/ab/load")
    finally:
        listener.stop()


def test_status_of_hosts_is_shown_as_that_of_one_machine(
    diem: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    directory_of(tmp_path, ("data", f"http://{nobody}", nobody), ("nginx", None, nobody))
    assert diem("status", "--hosts", str(tmp_path)) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:2] == ["process", "state"]
    assert ["data", "on", "b", "no", "answer"] in [line[:5] for line in lines]
    assert ["nginx", "on", "b", "no", "answer"] in [line[:5] for line in lines]


def test_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoSystem, match="no directory of `diem config MODE --hosts"):
        asyncio.run(read_status(tmp_path))
