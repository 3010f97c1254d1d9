"""Client tokens of a real process: issued over HTTP, verified elsewhere, rotated and revoked while it runs."""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from diem.tokens.claims import Claims
from diem.tokens.errors import TokenInvalid, TokenRevoked
from diem.tokens.key_source import KeySource
from diem.tokens.verifier import Verifier
from tests.integration.data.process import DataProcess, bulk, serving
from tests.integration.data.test_keys import create, diem, reader
from tests.support.patience import PATIENCE_S

PLANS = """
[[plan]]
name = "dam"
prefixes = ["/dam"]
token_seconds = 600
"""


async def mint(process: DataProcess, key: str) -> str:
    async with reader(process, key) as http:
        answer = await http.post("/v1/tokens")
    assert answer.status_code == 200, answer.text
    assert 0 <= time.time() + 600 - answer.json()["expires"] < 60
    return str(answer.json()["token"])


@contextlib.asynccontextmanager
async def following(process: DataProcess, withdrawn: asyncio.Event | None = None) -> AsyncIterator[Verifier]:
    """Keep a verifier's keys current, as a server does, but without its pauses."""

    async def pause(_seconds: float) -> None:
        await asyncio.sleep(0.02)

    verifier = Verifier()
    on_withdrawn = None if withdrawn is None else withdrawn.set
    source = KeySource([f"{process.url}/v1/tokens/keys"], verifier, on_withdrawn=on_withdrawn, pause=pause)
    task = asyncio.create_task(source.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not source.ready:
                await asyncio.sleep(0.01)
        yield verifier
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def accepted(verifier: Verifier, token: str) -> Claims:
    """Return the claims of a token once it is accepted."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return verifier.verify(token, time.time())
            except TokenInvalid:
                await asyncio.sleep(0.02)


async def test_a_token_is_verified_elsewhere_and_reads_here(tmp_path: Path) -> None:
    async with serving(tmp_path / "state", config=PLANS, ANONYMOUS_READS="off") as process:
        async with httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=PATIENCE_S) as http:
            assert (await http.put("/v1/data", json=bulk({"/dam/a": 1, "/load/a": 2}))).status_code == 200
        key = await create(process, "dam")
        token = await mint(process, key)
        async with following(process) as verifier:
            claims = verifier.verify(token, time.time())
        assert (claims.key, claims.prefixes) == (key[5:13], ("/dam",))
        async with reader(process, token) as http:
            assert (await http.get("/v1/data/dam/a")).json()["points"][0]["value"] == 1
            assert (await http.get("/v1/history/dam/a")).status_code == 200
            assert (await http.get("/v1/data/load/a")).status_code == 403
        await process.end()
        assert token not in "\n".join(process.log)
        assert (tmp_path / "state" / "token-keys").stat().st_mode & 0o777 == 0o700


async def test_tokens_outlive_a_restart_and_a_rotation(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with serving(state, config=PLANS) as process:
        key = await create(process, "dam")
        first = await mint(process, key)
        await process.end(signal.SIGKILL)
    async with serving(state, config=PLANS) as process, following(process) as verifier:
        await accepted(verifier, first)
        code, out, err = await diem(state, process, "rotate", "--json", group="tokens")
        assert code == 0, err
        made = json.loads(out)
        code, out, err = await diem(state, process, "keys", group="tokens")
        assert [line.split()[3] for line in out.splitlines()[1:]] == ["signing", "published"], err
        async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient(base_url=process.url, timeout=PATIENCE_S) as http:
            while True:
                kids = [jwk["kid"] for jwk in (await http.get("/v1/tokens/keys")).json()["keys"]]
                if kids[1:] == [made["kid"]]:
                    break
                await asyncio.sleep(0.05)
        await accepted(verifier, first)
        # Without the old key there is only the new one to sign with, and the old tokens are withdrawn.
        (state / "token-keys" / f"{kids[0]}.key").unlink()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    verifier.verify(first, time.time())
                except TokenInvalid:
                    break
                await asyncio.sleep(0.05)
        await accepted(verifier, await mint(process, key))


async def test_a_revocation_by_command_reaches_verifiers_also_after_a_kill(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with serving(state, config=PLANS) as process:
        key = await create(process, "dam")
        token = await mint(process, key)
        withdrawn = asyncio.Event()
        async with following(process, withdrawn) as verifier:
            await accepted(verifier, token)
            assert (await diem(state, process, "revoke", key[5:13]))[0] == 0
            async with asyncio.timeout(PATIENCE_S):
                await withdrawn.wait()
            with pytest.raises(TokenRevoked):
                verifier.verify(token, time.time())
        async with reader(process, token) as http:
            assert (await http.get("/v1/endpoints")).status_code == 401
        await process.end(signal.SIGKILL)
    async with serving(state, config=PLANS) as process:
        async with reader(process, token) as http:
            assert (await http.get("/v1/endpoints")).status_code == 401
        async with httpx.AsyncClient(base_url=process.url, timeout=PATIENCE_S) as http:
            assert list((await http.get("/v1/tokens/keys")).json()["revoked"]) == [key[5:13]]
