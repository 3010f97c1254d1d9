"""Signing keys behind the internal listener; keys of the store are in ``access/test_access.py``."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from diem.process.clock import SystemClock
from services.data.access.access import Access
from services.data.access.keys import ApiKeys
from services.data.access.plans import AccessPlans
from services.data.access.signing import MAX_FILES, SigningKeys
from services.data.api.keys import internal_app
from services.data.store.store import Store
from tests.support.new_store import new_store
from tests.unit.services.data.conftest import assert_problem


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    clock = SystemClock()
    store = await Store.open(new_store(tmp_path / "data.db"), clock=clock)
    signing = SigningKeys(tmp_path / "token-keys", clock)
    signing.load()
    async with store.serving():
        app = internal_app(Access(AccessPlans(), ApiKeys(), store, clock, signing))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://internal") as client:
            yield client


async def test_a_rotation_answers_with_the_new_key_and_both_are_listed(http: httpx.AsyncClient, tmp_path: Path) -> None:
    (first,) = (await http.get("/v1/keys/signing")).json()["keys"]
    assert (first["algorithm"], first["state"], first["until"]) == ("EdDSA", "signing", None)
    made = await http.post("/v1/keys/signing")
    assert made.status_code == 201
    second = made.json()
    assert (second["state"], second["algorithm"]) == ("published", "EdDSA")
    assert first["created"] < second["created"] < second["until"]
    listed = (await http.get("/v1/keys/signing")).json()["keys"]
    assert listed == [{**first, "until": second["until"]}, second]
    assert {path.stem for path in (tmp_path / "token-keys").iterdir()} == {first["kid"], second["kid"]}
    for file in (tmp_path / "token-keys").iterdir():
        assert file.read_text().strip() not in json.dumps(listed)


async def test_a_rotation_that_is_not_possible_is_refused(http: httpx.AsyncClient, tmp_path: Path) -> None:
    for _ in range(MAX_FILES - 1):
        assert (await http.post("/v1/keys/signing")).status_code == 201
    assert_problem(await http.post("/v1/keys/signing"), 409, "too_many_keys")
    (tmp_path / "token-keys").chmod(0o777)
    assert_problem(await http.post("/v1/keys/signing"), 503, "bad_key_file")
    assert len((await http.get("/v1/keys/signing")).json()["keys"]) == MAX_FILES
