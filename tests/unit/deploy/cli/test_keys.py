"""`diem keys internal`: the files that processes share, made without `diem up`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.cli.keys import PURPOSES, ROLE_PURPOSES
from deploy.system.state_dir import StateDir
from diem.process.auth import SharedKey

Diem = Callable[..., int]


def test_keys_of_a_new_system_are_made_once(diem: Diem, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diem("keys", "internal", "new/keys") == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [["made", name] for name in PURPOSES]
    directory = tmp_path / "new" / "keys"
    assert {path.name for path in directory.iterdir()} == set(PURPOSES)
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    assert directory.stat().st_mode & 0o777 == 0o700
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert len(set(before.values())) == len(PURPOSES)
    (directory / "traffic.salt").unlink()
    assert diem("keys", "internal", "new/keys") == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()] == ["kept", "kept", "kept", "made"]
    del before["traffic.salt"]
    assert all((directory / name).read_bytes() == content for name, content in before.items())


def test_keys_of_roles_are_made_on_request(diem: Diem, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diem("keys", "internal", "keys") == diem("keys", "internal", "keys", "--roles") == 0
    lines = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert lines[len(PURPOSES) :] == [
        *(["kept", name] for name in PURPOSES),
        *(["made", name] for name in ROLE_PURPOSES),
    ]
    assert {path.name for path in (tmp_path / "keys").iterdir()} == {*PURPOSES, *ROLE_PURPOSES}
    assert len({path.read_bytes() for path in (tmp_path / "keys").iterdir()}) == len(PURPOSES) + len(ROLE_PURPOSES)
    (tmp_path / "keys" / "plans.key").write_text("short\n")
    assert diem("keys", "internal", "keys", "--roles") == 2
    assert "plans.key: a key has 16 to 4096 characters" in capsys.readouterr().err


def test_they_are_those_of_the_state_directory(diem: Diem, tmp_path: Path) -> None:
    assert diem("keys", "internal") == 0
    header = SharedKey.load(tmp_path / ".diem" / "internal.key").header
    with StateDir(tmp_path / ".diem").lock():
        assert SharedKey.load(tmp_path / ".diem" / "internal.key").header == header


def test_a_file_that_is_no_key_or_a_directory_of_everybody_is_refused(
    diem: Diem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert diem("keys", "internal", "keys") == 0
    (tmp_path / "keys" / "write.key").write_text("short\n")
    assert diem("keys", "internal", "keys") == 2
    assert "write.key: a key has 16 to 4096 characters" in capsys.readouterr().err
    (tmp_path / "keys").chmod(0o777)
    assert diem("keys", "internal", "keys") == 2
    assert "others may write it" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert diem("keys", "internal", "file/keys") == 2
    assert "Not a directory" in capsys.readouterr().err


def test_wrong_state_directory_is_named_before_its_keys(diem: Diem, capsys: pytest.CaptureFixture[str]) -> None:
    assert diem("keys", "list") == 1
    error = capsys.readouterr().err
    assert "diem is not up in " in error
    assert "give its --state-dir" in error
    assert "internal.key" not in error


def test_who_needs_a_key_that_is_missing_is_told_where_it_comes_from(
    diem: Diem, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (("run", "broadcast"), ("run", "websocket"), ("keys", "list", "--data", "http://h:9080")):
        assert diem(*arguments) == 2
        error = capsys.readouterr().err
        assert (
            "internal.key: No such file or directory: copy it from the state directory of the machine with the" in error
        )
        assert "keys internal " in error
    assert diem("keys", "internal") == 0
    Path(".diem/write.key").unlink()
    assert diem("run", "data") == 2
    assert "write.key: No such file or directory: copy it from where the Data Service ran" in capsys.readouterr().err
