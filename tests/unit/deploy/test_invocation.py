import os
import sys
from pathlib import Path

import pytest

from deploy.invocation import diem_command, pasteable


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program ``diem`` of an environment in the present directory, which is not on PATH."""
    script = tmp_path / ".venv" / "bin" / "diem"
    install(script)
    monkeypatch.setattr(sys, "executable", str(script.with_name("python")))
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.chdir(tmp_path)
    return script


def install(script: Path) -> None:
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)


def test_without_an_activated_environment_commands_have_the_path(script: Path) -> None:
    assert diem_command("status") == ".venv/bin/diem status"
    assert diem_command("put", "/a", "my file.csv") == ".venv/bin/diem put /a 'my file.csv'"


@pytest.mark.usefixtures("script")
def test_elsewhere_the_path_is_absolute_where_that_is_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path.joinpath(*("deep",) * 40)
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert diem_command("status") == f"{tmp_path}/.venv/bin/diem status"


def test_beside_the_program_the_path_has_a_slash(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(script.parent)
    assert diem_command("status") == "./diem status"


def test_on_the_path_the_name_is_enough(script: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    assert diem_command("status") == "diem status"
    linked = tmp_path / "local" / "diem"
    linked.parent.mkdir()
    linked.symlink_to(script)
    monkeypatch.setenv("PATH", str(linked.parent))
    assert diem_command("status") == "diem status"


@pytest.mark.usefixtures("script")
def test_another_diem_on_the_path_is_not_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "other" / "diem")
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    assert diem_command("status") == ".venv/bin/diem status"


def test_without_a_script_the_module_is_run(script: Path) -> None:
    script.unlink()
    assert diem_command("status") == f"{script.parent}/python -m deploy status"


@pytest.mark.usefixtures("script")
def test_commands_in_messages_get_the_path_and_names_do_not() -> None:
    text = "start it with `diem up`, or see `diem keys list`; `diem` reads `diem.toml`, diem up does not"
    expected = (
        "start it with `.venv/bin/diem up`, or see `.venv/bin/diem keys list`; "
        "`diem` reads `diem.toml`, diem up does not"
    )
    assert pasteable(text) == expected


@pytest.mark.usefixtures("script")
def test_path_with_a_space_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "my env" / "diem")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "my env" / "python"))
    assert diem_command("status") == "'my env/diem' status"
