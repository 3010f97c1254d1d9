"""`diem recommend` as a user runs it beside a `diem up`."""

import json
from pathlib import Path

import pytest

from tests.integration.deploy.running import diem, fine, up


@pytest.mark.takes(10)
async def test_a_running_system_is_the_load_but_for_the_numbers_that_are_given(tmp_path: Path) -> None:
    async with up(tmp_path, market=True) as running:
        # A data service is ready before its market has made the first endpoints.
        status = await running.until_status(lambda now: fine(now) and now["data"]["report"]["endpoints"] > 0)
        endpoints = status["data"]["report"]["endpoints"]
        code, out, err = await diem("recommend", "--clients", "500", "--updates", "20", "--json", cwd=tmp_path)
        assert code == 0, err
        found = json.loads(out)
        assert found["source"].startswith("the running single, ")
        # Of a market that has just begun: there may be more by now.
        assert found["load"]["endpoints"] >= endpoints
        assert found["load"]["clients"] == 500
        assert found["command"] == "diem up --mode single"

        # Nobody is connected: there is nothing to recommend a mode for.
        code, out, err = await diem("recommend", cwd=tmp_path)
        assert (code != 0, out) == (True, "")
        assert "--clients" in err
        assert err.count("\n") == 1
