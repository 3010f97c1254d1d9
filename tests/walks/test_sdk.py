"""The SDK's own walks (``client/tests/sdk/walk.test.ts``), longer and with the seed of this run.

``make test`` runs the short ones with the rest of the client's tests.
"""

import os
import subprocess
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[2] / "client"


@pytest.mark.skipif("DIEM_WALKS_FACTOR" not in os.environ, reason="Vitest runs them in make test")
@pytest.mark.skipif(not (CLIENT / "node_modules").exists(), reason="make client-test installs what they need")
def test_what_the_sdk_calls_live_is_live(request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--hypothesis-seed")
    ran = subprocess.run(
        ["../deploy/install/node.sh", "npx", "vitest", "run", "tests/sdk/walk.test.ts"],
        cwd=CLIENT,
        env={**os.environ} if seed is None else {**os.environ, "DIEM_WALKS_SEED": str(seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
