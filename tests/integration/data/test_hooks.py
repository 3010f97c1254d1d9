"""Deliveries of a webhook while the Data Service is killed: each is stored once."""

import asyncio
import hashlib
import hmac
import os
import random
import signal
from pathlib import Path

import httpx
import orjson
import pytest

from tests.integration.data.process import RESTARTED, DataProcess, serving
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.support.required import in_cluster

SECRET = "It's a Secret to Everybody"
CONFIG = """\
[[source]]
type = "webhook"
name = "code"
scheme = "github"
secret = { file = "hook.key" }
endpoint = "/repositories/{repository}"
kind = "notice"
"""
SENDERS = 4
IMPATIENT = 0.3
"""Share of requests whose answer is not waited for."""
OF_ONE = 500
"""Deliveries of one endpoint: fewer than the versions that are kept."""
KILLS = int(os.environ.get("DIEM_HOOK_KILLS", "3"))


class Sender:
    """A service that sends each delivery until it is accepted, as GitHub's redeliveries are, and is often impatient.

    ``keeps_id``: a delivery has the same id each time.
    """

    def __init__(self, name: str, http: httpx.AsyncClient, url: str, *, keeps_id: bool) -> None:
        self.accepted = self.repeated = 0
        self.name = name
        self.stopping = False
        self._keeps_id = keeps_id
        self._chance = random.Random(name)
        self._http = http
        self._url = f"{url}/v1/hooks/code"

    async def run(self) -> None:
        while not self.stopping:
            body = orjson.dumps({"repository": f"{self.name}/{self.accepted // OF_ONE}"})
            signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
            fields = {"Content-Type": "application/json", "X-Hub-Signature-256": f"sha256={signature}"}
            headers = {**fields, "X-GitHub-Delivery": f"{self.name}-{self.accepted}"}
            while not await self._is_accepted(body, headers):
                self.repeated += 1
                if not self._keeps_id:
                    headers["X-GitHub-Delivery"] = f"{self.name}-{self.accepted}-{self.repeated}"
                await asyncio.sleep(0.02)
            self.accepted += 1

    async def _is_accepted(self, body: bytes, headers: dict[str, str]) -> bool:
        patience = self._chance.uniform(0, 0.03) if self._chance.random() < IMPATIENT else PATIENCE_S
        try:
            async with asyncio.timeout(patience):
                answer = await self._http.post(self._url, content=body, headers=headers)
        except (httpx.TransportError, TimeoutError):
            return False
        assert answer.status_code in {200, 503}, answer.text
        return answer.status_code == 200


@in_cluster("it kills the Data Service several times")
@pytest.mark.parametrize("keeps_id", [True, False], ids=["same-id", "control"])
async def test_a_delivery_whose_answer_was_lost_by_a_kill_is_stored_once(tmp_path: Path, *, keeps_id: bool) -> None:
    chance, state = random.Random(7), tmp_path / "state"
    state.mkdir()
    (state / "hook.key").write_text(SECRET)
    (state / "hook.key").chmod(0o600)
    settings = {"PORT": str(free_port()), "HISTORY_VERSIONS": "1000", **RESTARTED}
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
        url = f"http://127.0.0.1:{settings['PORT']}"
        senders = [Sender(str(number), http, url, keeps_id=keeps_id) for number in range(SENDERS)]
        running = [asyncio.create_task(each.run()) for each in senders]
        for _ in range(KILLS if keeps_id else 1):
            async with serving(state, config=CONFIG, **settings) as process:
                await accepted_more(senders)
                await asyncio.sleep(chance.uniform(0, 0.2))
                await process.end(signal.SIGKILL)
        async with serving(state, config=CONFIG, **settings) as process:
            await accepted_more(senders, 5 if keeps_id else 50)
            for each in senders:
                each.stopping = True
            await asyncio.gather(*running)
            found = await versions(http, process, senders)
    assert sum(each.repeated for each in senders) >= KILLS
    assert (found == [each.accepted for each in senders]) is keeps_id


async def accepted_more(senders: list[Sender], count: int = 5) -> None:
    """Wait until as many deliveries of each sender were accepted."""
    wanted = [each.accepted + count for each in senders]
    async with asyncio.timeout(PATIENCE_S):
        while any(each.accepted < most for each, most in zip(senders, wanted, strict=True)):
            await asyncio.sleep(0.01)


async def versions(http: httpx.AsyncClient, process: DataProcess, senders: list[Sender]) -> list[int]:
    """Return the number of versions of each sender's endpoints."""
    found = [0] * len(senders)
    for index, each in enumerate(senders):
        for part in range(each.accepted // OF_ONE + 1):
            answer = await http.get(f"{process.url}/v1/history/repositories/{each.name}/{part}")
            found[index] += len(answer.json().get("versions", ()))
    return found
