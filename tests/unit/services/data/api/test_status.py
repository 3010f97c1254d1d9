"""GET /v1/sources: public state of the sources, and conditional requests."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from diem.process.auth import SharedKey
from diem.process.clock import ManualClock
from services.data.access.access import Access
from services.data.access.plans import AccessPlan, AccessPlans
from services.data.access.rights import common_rights
from services.data.api import ApiOptions, make_api
from services.data.errors import InvalidDataset, StoreUnavailable
from services.data.kinds.series import parse_single
from services.data.sources.config import load
from services.data.sources.fetch import PollingClient
from services.data.sources.runner import SourceRunner
from services.data.sources.source import Fault, Health, fault_of
from tests.support.file_threads import FILES
from tests.unit.services.data.conftest import BODY, Rest
from tests.unit.services.data.sources.toml import write

CONFIG = """\
[[source]]
type = "http"
name = "prices"
url = "http://user:secret@127.0.0.1:1/prices.csv"
endpoint = "/prices"
unit = "EUR/MWh"
resolution = "PT1H"

[[source]]
type = "directory"
name = "files"
path = "/nowhere/at/all"
prefix = "/files"
"""


async def test_the_sources_are_listed_with_an_etag_that_changes_with_their_state(rest: Rest, tmp_path: Path) -> None:
    runner = SourceRunner.configured(load(write(tmp_path, CONFIG)), ManualClock(), convert=FILES.convert)

    def owner_of(_endpoint: str) -> None:
        return None

    api = make_api(
        rest.store,
        SharedKey("k" * 32),
        owner_of,
        ApiOptions(tmp_path),
        rest.clock,
        sources=runner.public_status,
        files=FILES,
    )
    transport = httpx.ASGITransport(api.app, client=("127.0.0.1", 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        first = await http.get("/v1/sources")
        assert first.json()["sources"] == [_entry("prices", "http"), _entry("files", "directory")]
        assert "secret" not in first.text
        assert first.headers["cache-control"] == "no-cache"
        again = await http.get("/v1/sources", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        for source in runner._sources:
            async with PollingClient(5.0) as client:
                if hasattr(source, "poll"):
                    await source.poll(client, rest.store.writer.put)
                if hasattr(source, "scan"):
                    await source.scan(rest.store.writer.put)
        changed = await http.get("/v1/sources", headers={"If-None-Match": first.headers["etag"]})
        prices, files = changed.json()["sources"]
        assert (prices["ok"], prices["failures"]) == (False, 1)
        assert prices["error"] == files["error"] == "it cannot be reached or read"
        errors = [entry["error"] for entry in runner.status()]
        assert errors == [
            "ConnectError: All connection attempts failed",
            "no such directory: /nowhere/at/all",
        ]
        assert "secret" not in changed.text
        assert "nowhere" not in changed.text
        assert (await http.put("/v1/sources")).status_code == 405


async def test_a_reader_sees_the_sources_of_what_it_may_read_and_counts_of_these(rest: Rest, tmp_path: Path) -> None:
    runner = SourceRunner.configured(load(write(tmp_path, CONFIG)), ManualClock(), convert=FILES.convert)
    put = runner._sink_of("files", rest.store.writer.put)
    names = ["/files/GR/a", "/files/GR-old", "/files/GR/b", "/files/IT", "/files/GR"]
    await put([parse_single(name, json.dumps(BODY).encode()) for name in names], source="files")
    plans = [
        AccessPlan("open"),
        AccessPlan("part", prefixes=("/files/GR",)),
        AccessPlan("prices", prefixes=("/prices", "/load")),
        AccessPlan("none", prefixes=("/price", "/prices/x", "/load")),
    ]
    access = await Access.open(AccessPlans(plans), rest.store, rest.clock)
    api = make_api(
        rest.store,
        SharedKey("k" * 32),
        lambda _: None,
        ApiOptions(tmp_path),
        rest.clock,
        access=access,
        sources=runner.public_status,
        files=FILES,
    )
    transport = httpx.ASGITransport(api.app, client=("127.0.0.1", 5000))
    etags = set()
    for plan, expected in (
        ("open", {"prices": 0, "files": 5}),
        ("part", {"files": 3}),
        ("prices", {"prices": 0}),
        ("none", {}),
    ):
        _, text = await access.create("a test", plan)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            answer = await http.get("/v1/sources", headers={"Authorization": f"Bearer {text}"})
        assert {each["name"]: each["endpoints"] for each in answer.json()["sources"]} == expected
        assert answer.headers["vary"] == "Authorization"
        etags.add(answer.headers["etag"])
    assert len(etags) == 4
    # Names that come later are counted, too.
    await put([parse_single("/files/GR/c", json.dumps(BODY).encode())], source="files")
    assert runner.public_status(common_rights((("/files/GR",),)))[0]["endpoints"] == 4


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (InvalidDataset("the column price is missing in /etc/prices.csv"), Fault.INVALID),
        (StoreUnavailable("disk full at /var/lib"), Fault.STORE),
        (OSError("no route to db.internal"), Fault.UNREACHABLE),
    ],
)
def test_the_public_status_describes_errors_in_general_words(error: Exception, fault: Fault) -> None:
    health = Health("files", ManualClock())
    health.failed(str(error), fault=fault_of(error))
    assert health.public_status()["error"] == fault.value
    assert health.status()["error"] == str(error)
    health.failed("a plug-in's own text with /its/paths")
    assert health.public_status()["error"] == Fault.OTHER.value
    health.succeeded()
    assert health.public_status()["error"] is None


def _entry(name: str, kind: str) -> dict[str, Any]:
    more = {"ok": False, "error": None, "last_success": None, "failures": 0, "endpoints": 0}
    return {"name": name, "type": kind, **more}
