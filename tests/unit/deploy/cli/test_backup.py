"""`diem backup` and `diem restore` as a person runs them: the store of the state directory, or one that is named."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from io import TextIOWrapper
from pathlib import Path

import pytest

from services.data.access import records
from services.data.access.keys import new_key
from services.data.kinds.series import Point, build
from services.data.store import MARK_FILE
from services.data.store.rollback_guard import HighWaterMark, MarkFile
from services.data.store.store import Store

Diem = Callable[..., int]
Pipe = Callable[[], tuple[TextIOWrapper, TextIOWrapper]]
ROOT = Path(__file__).parents[4]


def write(url: str, value: float) -> Store:
    async def work() -> Store:
        store = await Store.open(url)
        async with store.serving():
            await store.writer.put([build("/a", "MW", "PT1H", [Point(0, value)])])
        return store

    return asyncio.run(work())


def read(url: str) -> tuple[Store, bytes]:
    async def work() -> tuple[Store, bytes]:
        store = await Store.open(url)
        async with store.serving():
            return store, (await store.reader.current("/a")).content

    return asyncio.run(work())


def test_the_store_of_the_state_directory_is_backed_up_and_restored(
    diem: Diem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / '.diem' / 'data.db'}"
    store = write(url, 1)
    assert diem("backup", "file") == 0
    assert f"file has 1 endpoints, at position 1 of store {store.id}" in capsys.readouterr().out
    write(url, 2)
    assert diem("restore", "file") == 1
    assert "has 1 endpoints: add --replace" in capsys.readouterr().err
    # Versions that the store had when it was lost are beyond all clocks here.
    MarkFile(tmp_path / ".diem" / MARK_FILE).write(HighWaterMark(store.id, 9, 9 * 10**12))
    assert diem("restore", "file", "--replace") == 0
    assert f"with versions from {9 * 10**12 + 1}" in capsys.readouterr().out
    restored, content = read(url)
    assert b'"value":1' in content
    assert restored.id != store.id


@pytest.mark.parametrize("variable", ["DIEM_DATA_DATABASE_URL_FILE", "diem_database_url_file"])
def test_the_url_of_the_store_may_be_in_a_file(
    diem: Diem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str
) -> None:
    store = write(f"sqlite:///{tmp_path / 'named.db'}", 1)
    (tmp_path / "url").write_text(f"sqlite:///{tmp_path / 'named.db'}\n")
    (tmp_path / "url").chmod(0o600)
    monkeypatch.setenv(variable, "url")
    assert diem("backup", "file") == 0
    assert store.id in capsys.readouterr().out


def test_api_keys_are_shown_and_become_valid_with_yes(diem: Diem, capsys: pytest.CaptureFixture[str]) -> None:
    key = new_key("The page", "free", 0)[0]

    async def work() -> None:
        store = await Store.open("sqlite:///one.db")
        async with store.serving():
            await store.transact(partial(records.add_key, key=key))

    asyncio.run(work())
    assert diem("backup", "file", "--database-url", "sqlite:///one.db") == 0
    capsys.readouterr()
    assert diem("restore", "file", "--database-url", "sqlite:///two.db") == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1].split("  ") == [key.id, "The page", "free", "1970-01-01T00:00:00Z"]
    assert "1 API key of the backup would become valid; nothing was changed: add --yes to accept it" in shown.err
    assert diem("restore", "file", "--database-url", "sqlite:///two.db", "--yes") == 0
    output = capsys.readouterr().out.splitlines()
    assert len(output) == 4
    assert output[2].startswith(key.id)
    assert output[3].startswith("1 API key as of 20")
    assert "diem keys revoke ID" in output[3]
    assert diem("restore", "file", "--replace", "--database-url", "sqlite:///two.db") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_key_cannot_hide_itself_by_its_name(diem: Diem, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever wrote the backup has chosen it: it is shown before it becomes valid."""

    async def work() -> None:
        store = await Store.open("sqlite:///one.db")
        async with store.serving():
            await store.transact(partial(records.add_key, key=new_key("\x1b[2K\r", "free", 0)[0]))

    asyncio.run(work())
    assert diem("backup", "file", "--database-url", "sqlite:///one.db") == 0
    capsys.readouterr()
    assert diem("restore", "file", "--database-url", "sqlite:///two.db") == 1
    assert "?[2K?" in capsys.readouterr().out


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """Return a function that makes a pipe and returns its ends, each as a standard stream is; a few KiB fit into it."""
    with ExitStack() as opened:

        def make() -> tuple[TextIOWrapper, TextIOWrapper]:
            reading, writing = os.pipe()
            return opened.enter_context(os.fdopen(reading)), opened.enter_context(os.fdopen(writing, "w"))

        yield make


def test_a_backup_goes_through_pipes(
    diem: Diem, tmp_path: Path, pipe: Pipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As to and from a program that encrypts it; what such a program has lost is refused."""
    write(f"sqlite:///{tmp_path / 'one.db'}", 7)
    reading, writing = pipe()
    with monkeypatch.context() as streams:
        streams.setattr(sys, "stdout", writing)
        assert diem("backup", "-", "--database-url", "sqlite:///one.db") == 0
    writing.close()
    assert capsys.readouterr().err.startswith("the backup has 1 endpoints, at position 1 of store ")
    content = bytes(reading.buffer.read())
    for kept, code in ((content, 0), (content[: len(content) // 2], 1)):
        reading, writing = pipe()
        writing.buffer.write(kept)
        writing.close()
        monkeypatch.setattr(sys, "stdin", reading)
        assert diem("restore", "-", "--database-url", "sqlite:///two.db", "--replace") == code
        assert b'"value":7' in read(f"sqlite:///{tmp_path / 'two.db'}")[1]
    assert capsys.readouterr().err.endswith("the rest is missing; nothing was changed\n")
    assert [path.name for path in tmp_path.glob("*.part")] == []


def test_a_backup_into_a_pipe_without_a_reader_is_one_line(tmp_path: Path, pipe: Pipe) -> None:
    write(f"sqlite:///{tmp_path / 'one.db'}", 7)
    reading, writing = pipe()
    reading.close()
    argv = (sys.executable, "-m", "deploy", "backup", "-", "--database-url", "sqlite:///one.db")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        argv, cwd=tmp_path, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (1, "diem: the backup of one.db failed: [Errno 32] Broken pipe\n")


def test_a_backup_is_for_its_owner_and_does_not_follow_a_planted_symlink(diem: Diem, tmp_path: Path) -> None:
    write(f"sqlite:///{tmp_path / 'one.db'}", 7)
    (tmp_path / "theirs").touch()
    (tmp_path / "file").symlink_to(tmp_path / "theirs")
    assert diem("backup", "file", "--database-url", "sqlite:///one.db") == 0
    assert (tmp_path / "theirs").read_bytes() == b""
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    assert diem("restore", "file", "--database-url", "sqlite:///two.db") == 0


def test_options_of_earlier_releases_are_ignored_or_refused(diem: Diem, tmp_path: Path) -> None:
    write(f"sqlite:///{tmp_path / '.diem' / 'data.db'}", 1)
    assert diem("backup", "file") == 0
    assert diem("restore", "file", "--replace", "--unauthenticated") == 0
    assert diem("backup", "file", "--encrypt") == 2, "it would not be encrypted"


def test_another_store_is_selected_by_its_url(
    diem: Diem, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(f"sqlite:///{tmp_path / 'one.db'}", 7)
    assert diem("backup", "file", "--database-url", f"sqlite:///{tmp_path / 'one.db'}") == 0
    monkeypatch.setenv("DIEM_DATA_DATABASE_URL", f"sqlite:///{tmp_path / 'two.db'}")
    assert diem("restore", "file") == 0
    assert b'"value":7' in read(f"sqlite:///{tmp_path / 'two.db'}")[1]
    monkeypatch.setenv("DIEM_DATA_DATABASE_URL", "postgresql://me:secret@127.0.0.1:1/db")
    assert diem("backup", "file") == 1
    output = capsys.readouterr().err
    assert "diem: the backup of postgresql://[removed]@127.0.0.1:1/db failed: " in output
    assert "secret" not in output


def test_a_failure_is_a_one_line_error(diem: Diem, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diem("backup", "file") == 1
    assert "there is no file" in capsys.readouterr().err
    assert diem("backup", "no/file") == 2
    assert "no/file: No such file or directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert diem("restore", "file") == 2
    assert "'file': No such file or directory" in capsys.readouterr().err
