import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[4]
GUARD = (sys.executable, "-m", "deploy.system.pdeathsig")
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")


async def eventually(path: Path) -> str:
    async with asyncio.timeout(PATIENCE_S):
        while not (path.exists() and path.read_text().endswith("\n")):
            await asyncio.sleep(0.01)
    return path.read_text()


def test_program_replaces_the_process() -> None:
    script = "echo $PPID; exit 3"
    ran = subprocess.run([*GUARD, "/bin/sh", "-c", script], cwd=ROOT, capture_output=True, check=False)
    assert (ran.returncode, int(ran.stdout)) == (3, os.getpid())


def test_program_started_in_the_background_handles_sigint() -> None:
    # A shell's background processes ignore SIGINT, and hand that on.
    argv = (*GUARD, sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    started_by = f"import signal, subprocess; signal.signal(signal.SIGINT, signal.SIG_IGN); subprocess.run({argv!r})"
    ran = subprocess.run([sys.executable, "-c", started_by], cwd=ROOT, capture_output=True, check=False)
    assert b"KeyboardInterrupt" in ran.stderr


def test_missing_program_is_one_line() -> None:
    ran = subprocess.run([*GUARD, "/nowhere/nginx"], cwd=ROOT, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (127, b"diem: /nowhere/nginx: No such file or directory\n")


def test_missing_program_argument_prints_the_usage() -> None:
    ran = subprocess.run(GUARD, cwd=ROOT, capture_output=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.startswith(b"diem: usage:")


@linux
async def test_program_gets_sigterm_when_its_parent_is_killed(tmp_path: Path) -> None:
    script = (
        f"trap 'echo term > {tmp_path}/received; exit' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.05; done"
    )
    parent_program = "import subprocess, sys; subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL)"
    argv = (sys.executable, "-c", parent_program, *GUARD, "/bin/sh", "-c", script)
    parent = await asyncio.create_subprocess_exec(*argv, cwd=ROOT)
    await eventually(tmp_path / "pid")
    parent.kill()
    await parent.wait()
    assert await eventually(tmp_path / "received") == "term\n"


def test_program_is_not_started_if_the_supervisor_is_gone(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    ran = subprocess.run(
        [*GUARD, "/bin/sh", "-c", "echo started"], cwd=ROOT, stdin=reading, capture_output=True, check=False
    )
    os.close(reading)
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, b"", b"diem: the supervisor is gone\n")


def test_pdeathsig_imports_little() -> None:
    heavy = {"asyncio", "typer", "httpx", "diem"}
    code = f"import deploy.system.pdeathsig, sys; print(sorted({heavy} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert ran.stdout == b"[]\n"
