"""Client tokens under `diem up`: issued for an API key, accepted by the edge, also over a rotation, and revoked."""

import asyncio
import json
from pathlib import Path

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.integration.deploy.running import diem, up
from tests.support.day_boundary import wait_for_room_in_the_day
from tests.support.patience import PATIENCE_S, until
from tests.support.small import AS_SERIES

PLAN = """
[[plan]]
name = "dam"
prefixes = ["/dam"]
per_day = 20
"""
RELAYED = {"Via": "1.1 relay"}
"""With this field, a client is not taken for one of this machine: it needs a token."""


async def test_token_of_an_api_key_opens_its_endpoints_with_data_for_its_quota_until_the_key_is_revoked(
    tmp_path: Path,
) -> None:
    wait_for_room_in_the_day()
    (tmp_path / "diem.toml").write_text(PLAN)
    async with up(tmp_path, "--config", "diem.toml") as running:
        urls = running.described()["urls"]
        code, out, err = await diem("keys", "create", "page", "--plan", "dam", "--json", cwd=tmp_path)
        assert code == 0, err
        key = json.loads(out)
        async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
            answer = await http.post(f"{urls['rest']}/tokens", headers={"Authorization": f"Bearer {key['key']}"})
        protocols = [Subprotocol("diem.v1.json"), Subprotocol(f"bearer.{answer.json()['token']}")]
        await until((tmp_path / ".diem" / "token-keys.json").exists)
        await running.until_status(lambda status: _knows_keys(status["websocket-1"]["report"]))
        async with connect(
            urls["websocket"][0], proxy=None, subprotocols=protocols, additional_headers=RELAYED
        ) as client:
            assert json.loads(await client.recv())["authenticated"] is True
            await client.send('{"type":"subscribe","id":1,"endpoints":{"/dam/a":null,"/load/a":null},"data":true}')
            reply = json.loads(await client.recv())
            while reply["type"] != "subscribed":
                reply = json.loads(await client.recv())
            assert reply["endpoints"].keys() == {"/dam/a"}
            assert reply["rejected"]["/load/a"]["code"] == "forbidden"
            # The client keeps its connection while the key that signed its token is replaced.
            code, out, err = await diem("tokens", "rotate", "--json", cwd=tmp_path)
            assert (code, json.loads(out)["state"]) == (0, "published"), err
            await running.until_status(lambda status: _knows_keys(status["websocket-1"]["report"], 2))
            await client.send('{"type":"subscribe","id":2,"endpoints":{"/dam/b":null}}')
            while (reply := json.loads(await client.recv()))["type"] != "subscribed":
                pass
            assert reply["endpoints"].keys() == {"/dam/b"}
            # The server holds a share of what is left, and a part of the last one may not be enough for an update.
            assert 15 <= await _updates_until_the_quota_is_used_up(client, urls["rest"], tmp_path) <= 20
            async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
                usage = await http.get(f"{urls['rest']}/usage", headers={"Authorization": f"Bearer {key['key']}"})
            assert usage.json()["limits"][0]["remaining"] <= 5
            code, _, err = await diem("keys", "revoke", key["id"], cwd=tmp_path)
            assert code == 0, err
            async with asyncio.timeout(max(60, PATIENCE_S)):
                try:
                    while True:
                        await client.recv()
                except ConnectionClosed as error:
                    assert error.rcvd is not None
                    assert error.rcvd.code == 4503


async def _updates_until_the_quota_is_used_up(client: ClientConnection, rest: str, folder: Path) -> int:
    """Change an endpoint until its update comes without data; return the number of updates with data before."""
    write_key = (folder / ".diem" / "write.key").read_text().strip()
    received = 0
    async with (
        httpx.AsyncClient(timeout=PATIENCE_S, headers={"Authorization": f"Bearer {write_key}"}) as http,
        asyncio.timeout(PATIENCE_S),
    ):
        while True:
            dataset = {
                "unit": "EUR/MWh",
                "resolution": "PT1H",
                "points": [{"time": "2026-01-01T00:00:00Z", "value": received}],
            }
            (await http.put(f"{rest}/data/dam/a", json=dataset, headers=AS_SERIES)).raise_for_status()
            update = json.loads(await client.recv())
            while update["type"] != "update":
                update = json.loads(await client.recv())
            if "data" not in update:
                return received
            received += 1
            await asyncio.sleep(0.1)


def _knows_keys(report: dict[str, dict[str, object]] | None, count: int = 1) -> bool:
    return (report or {}).get("tokens", {}).get("keys") == count


async def test_without_a_key_a_user_of_the_machine_reads_nothing_where_clients_need_tokens(tmp_path: Path) -> None:
    async with up(tmp_path, "--mode", "x-broadcast", "--servers", "1", "--anonymous", "off", market=True) as running:
        described = running.described()
        (data,) = (each["ports"]["public"] for each in described["processes"] if each["name"] == "data")
        async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
            for rest in (described["urls"]["rest"], f"http://127.0.0.1:{data}/v1"):
                for path in ("/data/load/GR", "/endpoints", "/history/load/GR"):
                    assert (await http.get(rest + path)).status_code == 401, path
