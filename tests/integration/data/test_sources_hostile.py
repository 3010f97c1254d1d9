"""Sources against a hostile server: bounded time and memory in every case, and other sources go on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.data.hostile import Hostile, csv
from tests.integration.data.process import DataProcess, serving
from tests.support.patience import PATIENCE_S
from tests.support.required import in_cluster

CHANGES = 8
TIMES = 3
"""Least number of polls of every hostile case."""
GROWTH_MIB = 96
"""What the process may need more at its peak: bodies of 256 KiB as text, bytes and objects, and two threads' heaps.

One bomb alone is without an end, and the first chunk of it is 32 MiB when it is decoded at once.
"""

TIMED_OUT = "no complete answer in time"
EXPECTED = {
    "silent": TIMED_OUT,
    "slow": TIMED_OUT,
    "slow-headers": TIMED_OUT,
    "endless": "the body has more than 262144 bytes",
    "huge-length": "the body has more than 262144 bytes",
    "bomb-of-crumbs": "more than 200 times larger",
    "endless-interim": "the response is too long",
    "bomb-of-rows": "the body has more than 262144 bytes",
    "bomb": "the body has more than 262144 bytes",
    "redirect-port": "is not followed",
    "redirect-host": "is not followed",
    "redirect-scheme": "is not followed",
    "redirect-loop": "redirected more than 3 times",
    "redirect-nowhere": "RemoteProtocolError: Invalid URL",
    "too-short": "RemoteProtocolError",
    "too-long": "line 2",
    "status-500": "status 500",
    "status-503": "status 503",
    "unasked-304": "status 304",
    "cut-gzip": "in the middle of its gzip stream",
    "no-gzip": "labelled gzip and is not",
    "other-coding": "was not requested",
    "deep-json": "nested more than 32 deep",
    "flood": "more than 100 different endpoints",
}


def _source(port: int, name: str, target: str, timeout: float) -> str:
    return f"""
        [[source]]
        type = "http"
        name = "{name}"
        url = "http://127.0.0.1:{port}/{name}"
        every = 0.2
        timeout = {timeout}
        max_bytes = 262144
        max_endpoints = 100
        {target}
        unit = "MW"
        resolution = "PT1H"
        """


@pytest.fixture
async def hostile() -> AsyncIterator[Hostile]:
    async with Hostile().serving() as server:
        yield server


def _timeout_s(way: str) -> float:
    """Return a long time-out for a case that must meet another bound, even on a slow machine; else a short one."""
    return 3.0 if EXPECTED.get(way, TIMED_OUT) == TIMED_OUT else 30.0


def _config(hostile: Hostile, files: Path, ways: Collection[str]) -> str:
    targets = {"flood": 'prefix = "/flood"'}
    sources = [
        _source(hostile.port, name, targets.get(name, f'endpoint = "/bad/{name}"'), _timeout_s(name)) for name in ways
    ]
    # The enemies want the processor, too.
    sources += [_source(hostile.port, name, f'endpoint = "/{name}"', 30.0) for name in ("good", "moved")]
    directory = f"""
        [[source]]
        type = "directory"
        name = "files"
        path = "{files}"
        every = 0.1
        prefix = "/files"
        unit = "MW"
        resolution = "PT1H"
        """
    return "".join([*sources, directory])


def _peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


async def _sources(process: DataProcess, http: httpx.AsyncClient) -> dict[str, dict[str, Any]]:
    status = (await http.get(f"{process.internal}/status", headers=process.shared)).json()
    return {source["name"]: source for source in status["sources"]}


async def _until_value(http: httpx.AsyncClient, endpoint: str, value: float) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await http.get(f"/v1/data{endpoint}")
            if answer.status_code == 200 and answer.json()["points"][0]["value"] == value:
                return
            await asyncio.sleep(0.05)


async def _follow(process: DataProcess, hostile: Hostile, files: Path, values: Iterable[int]) -> None:
    """Change the good sources repeatedly, and wait until each change is stored."""
    async with httpx.AsyncClient(base_url=process.url, timeout=PATIENCE_S) as http:
        for value in values:
            hostile.good = csv(value)
            (files / ".file.csv").write_bytes(csv(value))
            (files / ".file.csv").replace(files / "file.csv")
            for endpoint in ("/good", "/moved", "/files/file"):
                await _until_value(http, endpoint, value)


def _unseen(seen: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the errors of the sources that have not reported the expected one yet."""
    return {name: seen[name] for name, text in EXPECTED.items() if not any(text in one for one in seen[name])}


@in_cluster("it takes 10 s of CPU time")
async def test_every_hostile_source_is_bounded_in_time_and_memory_and_others_go_on(
    hostile: Hostile, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    async with serving(tmp_path / "alone", config=_config(hostile, files, ())) as process:
        await _follow(process, hostile, files, range(CHANGES))
        alone = _peak_mib(process.child.pid)
    async with serving(tmp_path / "state", config=_config(hostile, files, hostile.ways)) as process:
        await _follow(process, hostile, files, range(CHANGES))
        async with httpx.AsyncClient(base_url=process.url, timeout=PATIENCE_S) as http:
            seen: dict[str, set[str]] = {name: set() for name in hostile.ways}
            sources: dict[str, dict[str, Any]] = {}
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    while not sources or _unseen(seen) or any(sources[name]["failures"] < TIMES for name in seen):
                        sources = await _sources(process, http)
                        for name in hostile.ways:
                            seen[name].add(str(sources[name]["error"]))
                        await asyncio.sleep(0.1)
            growth = _peak_mib(process.child.pid) - alone
            print(f"peak of memory: {alone:.0f} MiB alone, {growth:.0f} MiB more among {len(hostile.ways)} enemies")
            assert _unseen(seen) == {}
            assert [name for name in seen if sources[name]["failures"] < TIMES] == []
            assert [name for name in hostile.ways if sources[name]["ok"]] == []
            good = [sources[name] for name in ("good", "moved", "files")]
            assert [source for source in good if not source["ok"] or source["failures"]] == []
            # None of their data was stored, no other server was contacted, and nothing that they planted was sent back.
            listed = [entry["endpoint"] for entry in (await http.get("/v1/endpoints")).json()["endpoints"]]
            assert listed == ["/files/file", "/good", "/moved"]
            assert hostile.strangers == 0
            assert growth < GROWTH_MIB
        assert not any('"source stopped"' in line for line in process.log)
        assert await process.end() == 0
