"""The installing scripts use the virtual environment that ``make VENV=DIRECTORY`` names."""

import os
import subprocess
from pathlib import Path

import pytest

INSTALL = Path(__file__).parents[3] / "deploy" / "install"


def program(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
def test_node_is_that_of_the_virtual_environment(tmp_path: Path, relative: bool) -> None:
    package = tmp_path / "package"
    program(package / "bin" / "node", "echo the node of the environment")
    # It has the package, and says where.
    program(tmp_path / "bin" / "python", f"echo {package}")
    venv = os.path.relpath(tmp_path, INSTALL.parents[1]) if relative else str(tmp_path)
    ran = subprocess.run(
        [INSTALL / "node.sh", "node"],
        env={**os.environ, "VENV": venv, "DIEM_NODE_WHEEL": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines()[-1] == "the node of the environment"
