"""`diem backup` and `diem restore` as a person runs them: the store of the state directory, or one that is named."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from services.data.access import records
from services.data.access.keys import new_key
from services.data.datasets import Point, build
from services.data.store import MARK_FILE, Store
from services.data.store.rollback_guard import HighWaterMark, MarkFile

Diem = Callable[..., int]


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


def test_the_url_of_the_store_may_be_in_a_file(
    diem: Diem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = write(f"sqlite:///{tmp_path / 'named.db'}", 1)
    (tmp_path / "url").write_text(f"sqlite:///{tmp_path / 'named.db'}\n")
    (tmp_path / "url").chmod(0o600)
    monkeypatch.setenv("DIEM_DATA_DATABASE_URL_FILE", "url")
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


def test_the_key_of_the_state_directory_authenticates(
    diem: Diem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(f"sqlite:///{tmp_path / '.diem' / 'data.db'}", 1)
    assert diem("backup", "file") == 0
    assert "only .diem/backup.key can verify it: keep a copy of that key elsewhere" in capsys.readouterr().out
    key = tmp_path / ".diem" / "backup.key"
    assert oct(key.stat().st_mode)[-3:] == "600"
    content = bytearray((tmp_path / "file").read_bytes())
    content[-50] ^= 1
    (tmp_path / "changed").write_bytes(content)
    assert diem("restore", "changed", "--replace") == 1
    assert "changed cannot be restored: it was changed or cut after 0 bytes" in capsys.readouterr().err
    key.rename(tmp_path / "kept.key")
    assert diem("restore", "file", "--replace") == 2
    assert "key file " in capsys.readouterr().err
    assert diem("restore", "file", "--replace", "--key-file", "kept.key") == 0
    assert diem("restore", "file", "--replace", "--unauthenticated") == 0


def test_a_backup_is_encrypted_on_request(diem: Diem, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(f"sqlite:///{tmp_path / '.diem' / 'data.db'}", 1)
    assert diem("backup", "file", "--encrypt") == 0
    assert "only .diem/backup.key can read it" in capsys.readouterr().out
    assert diem("restore", "file", "--replace") == 0
    passphrase = tmp_path / "passphrase"
    passphrase.write_text("correct horse battery\n", encoding="utf-8")
    passphrase.chmod(0o600)
    assert diem("backup", "file", "--passphrase-file", "passphrase") == 0
    assert "key" not in capsys.readouterr().out.splitlines()[-1]
    assert diem("restore", "file", "--replace") == 1
    assert "it is encrypted with a passphrase: give --passphrase-file" in capsys.readouterr().err
    assert diem("restore", "file", "--replace", "--passphrase-file", "passphrase") == 0
    assert diem("backup", "file", "--passphrase-file", "passphrase", "--encrypt") == 2


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
    assert list(tmp_path.iterdir()) == []
    assert diem("restore", "file") == 1
    assert "file cannot be restored: there is no such file" in capsys.readouterr().err
