import json
import os
from pathlib import Path

import pytest

from deploy.system.state_dir import AlreadyUp, BadStateDir, StateDir
from diem.process.auth import BadKeyFile, SharedKey
from tests.support.file_owners import give_away, needs_root


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_lock_creates_a_private_directory_with_private_keys(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "a" / "state")
    with state.lock():
        assert mode(state.path) == 0o700
        assert mode(state.internal_key_file) == mode(state.write_key_file) == mode(state.metrics_key_file) == 0o600
        assert mode(state.operator_key_file) == 0o600
        assert not SharedKey.load(state.internal_key_file).matches(SharedKey.load(state.write_key_file).header)


def test_internal_sockets_of_a_killed_diem_up_are_removed(tmp_path: Path) -> None:
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    (sockets / "9400.sock").touch()
    with StateDir(tmp_path).lock():
        assert not list(sockets.iterdir())


def test_keys_are_kept(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    with state.lock():
        before = state.write_key_file.read_text()
    with state.lock():
        assert state.write_key_file.read_text() == before


def test_a_directory_whose_keys_are_being_replaced_is_accepted(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "state")
    with state.lock():
        first = state.internal_key_file.read_text()
    two = f"{'n' * 43}\n{first}"
    for file in (state.internal_key_file, state.metrics_key_file):
        file.write_text(two)
    with state.lock():
        assert state.internal_key_file.read_text() == two
        assert state.metrics_key_file.read_text() == two


def test_locked_directory_names_the_process_that_holds_it(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    with state.lock():
        state.write_processes({"pid": 4711})
        with pytest.raises(AlreadyUp, match=r"already up .*process 4711"), StateDir(tmp_path).lock():
            pass
    with StateDir(tmp_path).lock():
        pass


def test_list_of_a_killed_diem_up_is_removed_by_the_next(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    state.write_processes({"pid": 4711, "up": True})
    with state.lock():
        assert state.read_processes() == {}


def test_unusable_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadStateDir, match="state directory"), StateDir(tmp_path / "file" / "state").lock():
        pass


@needs_root
def test_directory_of_another_user_is_refused_with_a_remedy(tmp_path: Path) -> None:
    give_away(tmp_path)
    whose = r"belongs to user 12345: run this as 12345, or choose another --state-dir"
    with pytest.raises(BadStateDir, match=whose), StateDir(tmp_path).lock():
        pass
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("rights", [0o777, 0o1777, 0o770, 0o722])
def test_directory_writable_by_others_is_refused_with_a_remedy(tmp_path: Path, rights: int) -> None:
    tmp_path.chmod(rights)
    with pytest.raises(BadStateDir, match=r"others may write it: run chmod go-w"), StateDir(tmp_path).lock():
        pass
    assert not any(tmp_path.iterdir())


def test_directory_readable_by_others_is_accepted(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with StateDir(tmp_path).lock():
        pass


@needs_root
def test_key_of_another_user_in_our_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "internal.key").write_text("x" * 43)
    give_away(tmp_path / "internal.key").chmod(0o600)
    with pytest.raises(BadKeyFile, match="belongs to user 12345"), StateDir(tmp_path).lock():
        pass


def test_list_of_processes_is_replaced_atomically(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    assert state.read_processes() == {}
    state.write_processes({"pid": 1, "processes": []})
    state.write_processes({"pid": 2})
    assert json.loads((tmp_path / "processes.json").read_text()) == {"pid": 2}
    assert os.listdir(tmp_path) == ["processes.json"]  # noqa: PTH208  # names are what is compared
    state.remove_processes()
    assert state.read_processes() == {}


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_damaged_list_of_processes_is_ignored(tmp_path: Path, content: str) -> None:
    (tmp_path / "processes.json").write_text(content)
    assert StateDir(tmp_path).read_processes() == {}


def test_socket_is_in_the_directory(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    assert state.new_socket() == state.socket() == tmp_path / "control.sock"


def test_socket_of_a_long_directory_is_elsewhere_and_found_again(tmp_path: Path) -> None:
    state = StateDir(tmp_path / ("x" * 120))
    state.path.mkdir()
    socket = state.new_socket()
    assert len(os.fsencode(socket)) <= 100
    assert mode(socket.parent) == 0o700
    assert StateDir(state.path).socket() == socket
    socket.write_text("")
    state.remove_socket()
    assert not socket.parent.exists()
    assert not any(state.path.iterdir())


def test_control_socket_of_a_killed_diem_up_is_removed(tmp_path: Path) -> None:
    (tmp_path / "control.sock").write_text("")
    StateDir(tmp_path).new_socket()
    assert not (tmp_path / "control.sock").exists()
