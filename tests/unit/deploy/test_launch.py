import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import launch
from deploy.launch import child_environment, command, guarded

ROOT = str(Path(launch.__file__).resolve().parent.parent)


def test_children_find_our_packages_from_anywhere(tmp_path: Path) -> None:
    env = child_environment({"PATH": os.defpath})
    done = subprocess.run([*command(), "--version"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("diem ")


def test_children_keep_the_paths_of_the_environment() -> None:
    env = child_environment({"PYTHONPATH": os.pathsep.join(["/a", ROOT, "/b"])})
    assert env["PYTHONPATH"].split(os.pathsep) == [ROOT, "/a", "/b"]


def test_installed_packages_are_not_put_before_the_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("site.getsitepackages", lambda: [ROOT])
    assert child_environment({"A": "b"}) == {"A": "b"}


def test_children_are_not_told_of_kafka_by_the_environment() -> None:
    env = child_environment({"DIEM_KAFKA_BOOTSTRAP_SERVERS": "h:1", "DIEM_LOG_LEVEL": "info"})
    assert "DIEM_KAFKA_BOOTSTRAP_SERVERS" not in env
    assert env["DIEM_LOG_LEVEL"] == "info"


def test_programs_that_are_not_ours_are_run_by_the_guard(tmp_path: Path) -> None:
    done = subprocess.run(
        guarded(("/bin/echo", "hello")), cwd=tmp_path, env=child_environment({}), capture_output=True, check=True
    )
    assert done.stdout == b"hello\n"


@pytest.mark.parametrize("process", ["websocket", "broadcast"])
def test_start_of_an_edge_process_imports_no_command_line_store_or_web_framework(process: str) -> None:
    heavy = {"typer", "click", "httpx", "starlette", "uvicorn", "sqlalchemy", "alembic", "aiosqlite"}
    program = (
        "import sys; from deploy.run import program; "
        f"program({process!r}); print(*sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
