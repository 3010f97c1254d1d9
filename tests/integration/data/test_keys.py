"""API keys against a real process: exact quotas under concurrency and kills, revocation, command line, events."""

import asyncio
import json
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from diem.protocol.traffic import Type, decode
from tests.integration.data.process import RESTARTED, ROOT, DataProcess, bulk, serving, until
from tests.support.day_boundary import wait_for_room_in_the_day
from tests.support.internal import http_client
from tests.support.patience import PATIENCE_S

CLIENTS = 50
PER_DAY = 500
PLANS = f"""
[[plan]]
name = "minute"
per_minute = 90

[[plan]]
name = "day"
per_day = {PER_DAY}

[[plan]]
name = "dam"
prefixes = ["/dam"]
"""


@pytest.fixture(autouse=True)
def one_day() -> None:
    wait_for_room_in_the_day()


async def create(process: DataProcess, plan: str) -> str:
    async with http_client(process.key) as http:
        made = await http.post(f"{process.internal}/v1/keys", json={"name": "a test", "plan": plan})
    assert made.status_code == 201, made.text
    return str(made.json()["key"])


def reader(process: DataProcess, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=process.url, headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE_S)


async def statuses(process: DataProcess, key: str, clients: int, times: int) -> Counter[int]:
    """Return the answers to concurrent clients with a connection each."""

    async def one() -> list[int]:
        async with reader(process, key) as http:
            return [(await http.get("/v1/endpoints")).status_code for _ in range(times)]

    return Counter(status for found in await asyncio.gather(*(one() for _ in range(clients))) for status in found)


async def diem(state_dir: Path, process: DataProcess, *arguments: str, group: str = "keys") -> tuple[int, str, str]:
    """Run `diem keys ...`, or a command of another group."""
    options = ("--state-dir", str(state_dir), "--data", process.internal)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "deploy", group, *arguments, *options),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(child.communicate(), PATIENCE_S)
    return child.returncode or 0, out.decode(), err.decode()


@pytest.mark.usefixtures("any_database")
async def test_a_kill_never_exceeds_the_daily_quota(tmp_path: Path) -> None:
    key, answered = "", 0

    async def read(process: DataProcess) -> None:
        nonlocal answered
        async with reader(process, key) as http:
            while True:
                try:
                    status = (await http.get("/v1/endpoints")).status_code
                except httpx.TransportError:
                    return  # whether it was counted is not known
                if status != 200:
                    assert status == 429
                    return
                answered += 1

    kills = 3
    for life in range(kills + 1):
        async with serving(tmp_path / "state", config=PLANS, **RESTARTED) as process:
            key = key or await create(process, "day")
            before = answered
            readers = [asyncio.create_task(read(process)) for _ in range(CLIENTS)]
            async with asyncio.timeout(PATIENCE_S):
                # Two kills may have left less than this of the quota.
                while life < kills and answered < before + 60 and not all(each.done() for each in readers):
                    await asyncio.sleep(0.005)
            if life < kills:
                await process.end(signal.SIGKILL)
            await asyncio.gather(*readers)
            if life == kills:
                used = (await reader(process, key).get("/v1/usage")).json()
    assert used["requests"] == PER_DAY
    # What was reserved at a kill is lost: what waited, and at most two blocks.
    assert PER_DAY - kills * (CLIENTS + 2 * PER_DAY // 50 + CLIENTS) <= answered <= PER_DAY


async def test_a_key_is_refused_once_its_revocation_is_answered(tmp_path: Path) -> None:
    async with serving(tmp_path / "state", config=PLANS) as process:
        key = await create(process, "dam")
        stopped = asyncio.Event()
        answers = [Counter[int]() for _ in range(5)]

        async def read(found: Counter[int]) -> None:
            async with reader(process, key) as http:
                while not stopped.is_set():
                    found[(await http.get("/v1/endpoints")).status_code] += 1

        readers = [asyncio.create_task(read(found)) for found in answers]
        async with asyncio.timeout(PATIENCE_S):
            while not all(found[200] for found in answers):
                await asyncio.sleep(0.01)
        async with http_client(process.key) as http:
            assert (await http.delete(f"{process.internal}/v1/keys/{key[5:13]}")).status_code == 200
        assert await statuses(process, key, 5, 2) == {401: 10}
        stopped.set()
        await asyncio.gather(*readers)
        assert {status for found in answers for status in found} <= {200, 401}
        await process.end(signal.SIGKILL)
    async with serving(tmp_path / "state", config=PLANS) as process:
        assert await statuses(process, key, 1, 1) == {401: 1}


async def test_keys_from_the_command_line(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with serving(state, config=PLANS) as process:
        code, out, err = await diem(state, process, "create", "The page", "--plan", "dam")
        key = out.strip()
        assert (code, len(key)) == (0, 57)
        assert key not in err
        assert "not shown again" in err
        assert await statuses(process, key, 1, 1) == {200: 1}
        code, out, _ = await diem(state, process, "create", "Two", "--plan", "day", "--json")
        made: dict[str, Any] = json.loads(out)
        assert (code, made["name"], made["plan"], made["key"][5:13]) == (0, "Two", "day", made["id"])
        _, out, _ = await diem(state, process, "list")
        assert [line.split()[:5] for line in out.splitlines()][1:] == [
            [key[5:13], "The", "page", "plan", "dam"],
            [made["id"], "Two", "plan", "day", made["created"][:19] + "Z"],
        ]
        code, out, _ = await diem(state, process, "revoke", key[5:13])
        assert (code, out.startswith(f"key {key[5:13]} of The page was revoked at 20")) == (0, True)
        assert await statuses(process, key, 1, 1) == {401: 1}
        _, listed, _ = await diem(state, process, "list", "--json")
        assert [entry["revoked"] is None for entry in json.loads(listed)["keys"]] == [False, True]
        for arguments, said in (
            (
                ("create", "x", "--plan", "gold"),
                "there is no plan 'gold'; known: dam, day, minute. Add a [[plan]] to diem.toml (docs/access.md)",
            ),
            (("revoke", "aaaaaaaa"), "there is no API key with this id"),
            (("revoke", "../x"), "there is no API key with this id"),
        ):
            code, out, err = await diem(state, process, *arguments)
            assert (code, out, err) == (1, "", f"diem: the Data Service refuses: {said}\n")
        pages = ("--origin", "https://App.example:443", "--origin", "http://localhost:3000")
        code, out, _ = await diem(state, process, "create", "Pages", "--plan", "dam", *pages, "--json")
        assert (code, json.loads(out)["origins"]) == (0, ["https://app.example", "http://localhost:3000"])
        secrets = [key.rpartition("_")[2], made["key"].rpartition("_")[2]]
        await process.end()
    logged = "\n".join(process.log)
    assert "key created" in logged
    for secret in secrets:
        assert secret not in logged + listed
        for file in state.rglob("*"):
            assert not file.is_file() or secret.encode() not in file.read_bytes()


@pytest.mark.usefixtures("any_database")
async def test_write_keys_from_the_command_line(tmp_path: Path) -> None:
    state = tmp_path / "state"
    options = (
        "--write",
        "--prefix",
        "/dam",
        "--prefix",
        "/load/GR",
        "--rate",
        "3",
        "--endpoints",
        "9",
        "--expires",
        "90d",
    )
    async with serving(state, config=PLANS) as process:
        code, out, err = await diem(state, process, "create", "importer", *options)
        key = out.strip()
        assert (code, len(key)) == (0, 57)
        assert "(writes /dam /load/GR, 3 a minute, 9 endpoints, until 20" in err
        async with reader(process, key) as http:
            assert (await http.put("/v1/data", json=bulk({"/dam/a": 1, "/load/GR": 1}))).status_code == 200
            refused = await http.put("/v1/data", json=bulk({"/other": 1}))
            assert (refused.status_code, refused.json()["code"]) == (403, "not_in_key")
            refused = await http.put("/v1/data", json=bulk({"/dam/a": 2}))
            assert (refused.status_code, refused.json()["code"]) == (429, "rate")
            assert (await http.get("/v1/data/dam/a")).json()["code"] == "write_only"
        _, out, _ = await diem(state, process, "list", "--json")
        (entry,) = json.loads(out)["keys"]
        assert (entry["writes"], entry["prefixes"], entry["per_minute"]) == (True, ["/dam", "/load/GR"], 3)
        assert entry["last_used"] is not None
        assert (await diem(state, process, "revoke", key[5:13]))[0] == 0
        async with reader(process, key) as http:
            assert (await http.put("/v1/data", json=bulk({"/dam/a": 3}))).json()["code"] == "key_revoked"
        for arguments, text in (
            (("create", "x"), "an API key needs --plan, a write key --write"),
            (("create", "x", "--plan", "dam", "--write"), "a write key has no plan"),
            (("create", "x", "--write", "--origin", "https://a"), "--origin is for API keys"),
            (("create", "x", "--plan", "dam", "--rate", "5"), "--prefix and --rate are for write keys"),
            (("create", "x", "--plan", "dam", "--expires", "soon"), "'soon' is not a length of time"),
        ):
            code, out, err = await diem(state, process, *arguments)
            assert (code, out) == (2, "")
            assert text in err
        await process.end()
    lines = [json.loads(line) for line in process.log if line.startswith("{")]
    events = [(line["kind"], line.get("key_name"), line.get("code")) for line in lines if "kind" in line]
    assert events == [
        ("key_created", "importer", None),
        ("writes", "importer", None),
        ("forbidden", "importer", "not_in_key"),
        ("rate_exceeded", "importer", "rate"),
        ("forbidden", "importer", "write_only"),
        ("key_revoked", "importer", None),
        ("revoked_key", "importer", "key_revoked"),
    ]
    assert key.rpartition("_")[2] not in "".join(process.log)


async def test_usage_is_in_metrics_and_traffic_events(tmp_path: Path) -> None:
    state = tmp_path / "state"
    config = PLANS + '[[plan]]\nname = "anonymous"\nper_minute = 2\n'
    async with serving(state, config=config, DIEM_TRAFFIC_SINK="files") as process:
        async with httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=PATIENCE_S) as http:
            assert (await http.put("/v1/data", json=bulk({"/dam/a": 1, "/load/a": 1}))).status_code == 200
        key = await create(process, "dam")
        async with reader(process, key) as http:
            for path in ("data/dam/a", "data/dam/a", "data/load/a", "data/dam/none", "usage"):
                await http.get(f"/v1/{path}")
        async with httpx.AsyncClient(base_url=process.url, timeout=PATIENCE_S) as http:
            await until(http, "/v1/data/load/a", 429)
            scraped = await http.get(f"{process.internal}/metrics", headers=process.shared)
        for sample in (
            'diem_access_requests_total{outcome="admitted",plan="dam"} 3.0',
            'diem_access_requests_total{outcome="prefix",plan="dam"} 1.0',
            'diem_access_requests_total{outcome="minute",plan="anonymous"} 1.0',
            "diem_access_keys 1.0",
        ):
            assert sample in scraped.text
        assert await process.end() == 0
    lines = [line for file in (state / "traffic" / "in").iterdir() for line in file.read_bytes().splitlines()]
    events = [decode(line) for line in lines]
    assert {event.type for event in events} == {Type.ACCESS}
    assert {event.edge for event in events} == {"data"}
    requests = Counter[tuple[str, str, str, str]]()
    for each in (each for event in events for each in event.requests):
        requests[each.key, each.plan, each.endpoint, "answered"] += each.answered
        requests[each.key, each.plan, each.endpoint, "refused"] += each.refused
    of = key[5:13]
    assert +requests == {
        (of, "dam", "/dam/a", "answered"): 2,
        (of, "dam", "/load/a", "refused"): 1,
        (of, "dam", "", "answered"): 1,
        ("", "anonymous", "/load/a", "answered"): 2,
        ("", "anonymous", "/load/a", "refused"): 1,
    }
    assert key.rpartition("_")[2].encode() not in b"".join(lines)
