"""What executors receive, and the proof that they share a disk, without a JVM."""

import subprocess
import sys
from pathlib import Path

import pytest

from learning.jobs.executors import DiskNotShared, archive, require_proof, versions


def test_the_shipped_packages_are_complete(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    # -I: of this project only the archive is importable.
    path = f"import sys; sys.path.insert(0, {str(archive(tmp_path))!r})"
    code = f"{path}; import learning.jobs.tables as t; print(t.__file__)"
    ran = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.stdout.startswith(str(tmp_path)), ran.stderr


def test_versions_of_missing_distributions_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learning.jobs.executors.REQUIRED", ("orjson", "no-such-distribution"))
    found = versions()
    assert found["no-such-distribution"] is None
    assert found["orjson"] is not None
    assert found["Python"] == f"{sys.version_info.major}.{sys.version_info.minor}"


def test_a_task_without_the_proof_of_the_driver_writes_nothing(tmp_path: Path) -> None:
    token = tmp_path / "warehouse" / "_probe" / "0a" / "token"
    with pytest.raises(DiskNotShared, match=f"does not have the folder {tmp_path / 'warehouse'}"):
        require_proof(token)
    token.parent.mkdir(parents=True)
    token.write_text("another driver's")
    with pytest.raises(DiskNotShared):
        require_proof(token)
    token.write_text("0a")
    require_proof(token)
