import asyncio
from pathlib import Path
from typing import Any

import pytest

from deploy.system.control import CommandRefused, ControlFailed, request, serve
from deploy.system.state_dir import NotUp, StateDir


async def answer(_request: dict[str, Any]) -> dict[str, Any]:
    return {"processes": ["data"]}


async def raw(state: StateDir, request: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(state.socket())
    writer.write(request)
    writer.write_eof()
    reply = await reader.read()
    writer.close()
    await writer.wait_closed()
    return reply


async def test_command_gets_a_reply(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    async with serve(state, {"status": answer}):
        assert await request(state, "status") == {"processes": ["data"]}


async def test_arguments_reach_the_handler(tmp_path: Path) -> None:
    async def scale(request: dict[str, Any]) -> dict[str, Any]:
        return {"twice": 2 * request["servers"]}

    async with serve(state := StateDir(tmp_path), {"scale": scale}):
        assert await request(state, "scale", servers=3) == {"twice": 6}


async def test_refusal_of_a_handler_is_returned(tmp_path: Path) -> None:
    async def refuse(_request: dict[str, Any]) -> dict[str, Any]:
        raise CommandRefused("not that many")

    async with serve(state := StateDir(tmp_path), {"scale": refuse}):
        with pytest.raises(ControlFailed, match="not that many"):
            await request(state, "scale", servers=3)


async def test_socket_is_private_and_removed_with_the_server(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    async with serve(state, {}):
        assert state.socket().stat().st_mode & 0o777 == 0o600
    assert not state.socket().exists()


async def test_unknown_command_is_refused(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    async with serve(state, {"status": answer}):
        with pytest.raises(ControlFailed, match="does not know this command"):
            await request(state, "scale")


@pytest.mark.parametrize("request_", [b"", b"\n", b"[]\n", b"{\n", b"\xff\n", b'{"command":[]}\n', b"x" * 10_000])
async def test_malformed_request_is_refused(tmp_path: Path, request_: bytes) -> None:
    state = StateDir(tmp_path)
    async with serve(state, {"status": answer}):
        assert b'"error"' in await raw(state, request_)
        assert await request(state, "status")


async def test_request_without_a_running_diem_up_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotUp, match="diem is not up in"):
        await request(StateDir(tmp_path), "status")


async def test_socket_of_a_dead_process_means_nothing_runs(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    async with serve(state, {}):
        (tmp_path / "kept").hardlink_to(state.socket())
    (tmp_path / "kept").rename(state.socket())
    with pytest.raises(NotUp):
        await request(state, "status")


async def test_long_directory_is_supported(tmp_path: Path) -> None:
    state = StateDir(tmp_path / ("x" * 120))
    state.path.mkdir()
    async with serve(state, {"status": answer}):
        assert await request(StateDir(state.path), "status") == {"processes": ["data"]}


async def test_connections_beyond_the_limit_are_closed_unanswered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.system.control.MAX_CONNECTIONS", 1)
    state = StateDir(tmp_path)
    async with serve(state, {"status": answer}):
        _, first = await asyncio.open_unix_connection(state.socket())
        with pytest.raises(ControlFailed, match="closed the connection"):
            await request(state, "status")
        first.close()
        await first.wait_closed()
