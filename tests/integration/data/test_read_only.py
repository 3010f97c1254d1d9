"""The Data Service, which writes most, as containers run it: not as root, and on a read-only file system."""

import os
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.integration.data.process import bulk, serving
from tests.support.patience import PATIENCE_S

READ_ONLY = """
mount --make-rprivate / && mount --bind "$0" "$0" && mount -o remount,bind,ro / || exit 1
while read -r _ _ _ _ mounted _; do
  case "$mounted" in /|"$0"|/proc*|/sys*) ;; *) mount -o remount,bind,ro "$mounted" 2>/dev/null ;; esac
done < /proc/self/mountinfo
exec unshare --user --map-user=1000 --map-group=1000 "$@"
"""
"""Make everything but one directory read-only, and run a command as the owner of its files, without capabilities."""


@pytest.fixture
def launcher(tmp_path: Path) -> tuple[str, ...]:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    made = ("unshare", "--mount", "sh", "-c", READ_ONLY, str(state))
    if os.geteuid() != 0 or subprocess.run((*made, "true"), check=False, capture_output=True).returncode:
        pytest.skip("mounts cannot be made read-only here")
    for path, code in ((tmp_path / "other", 1), (state / "other", 0)):
        assert subprocess.run((*made, "touch", str(path)), check=False, capture_output=True).returncode == code
    return made


@pytest.mark.root
async def test_only_the_state_directory_is_written(tmp_path: Path, launcher: tuple[str, ...]) -> None:
    async with serving(tmp_path / "state", launcher=launcher, DIEM_TRAFFIC_SINK="files") as process:
        async with httpx.AsyncClient(base_url=process.url, headers=process.write, timeout=PATIENCE_S) as http:
            assert (await http.put("/v1/data", json=bulk({"/a": 1}))).status_code == 200
            assert (await http.get("/v1/data/a")).status_code == 200
        assert await process.end() == 0
        assert not [line for line in process.log if '"level":"error"' in line or "Read-only" in line]
