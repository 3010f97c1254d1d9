"""`diem pipeline erase`: which pseudonyms it looks for, and what it says."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from diem.process.auth import SharedKey
from diem.protocol.traffic import Type
from diem.traffic.salt import DAY_MS, DailySalt
from learning.spark import pipeline
from tests.support.day_boundary import wait_for_room_in_the_day
from tests.support.delta import event, ids, write
from tests.support.traffic import BEGIN, Life
from tests.support.traffic import write as write_lines
from tests.unit.learning.commands.conftest import Run

DAY = date(2026, 1, 1)
CLIENT = "4f2a9c"
Erase = Callable[..., tuple[int, str]]


@pytest.fixture
def erase(run: Run, tmp_path: Path) -> Erase:
    """Run the command with the state directory ``tmp_path``; return its exit code and output."""

    def call(*arguments: str) -> tuple[int, str]:
        code, out, err = run("pipeline", "erase", *arguments, "--state-dir", str(tmp_path))
        return code, out + err

    return call


def salt_of(file: Path, days_ago: int) -> str:
    """Advance the salt in a file to a day; return the client's pseudonym on it."""
    now = int(datetime.now(UTC).timestamp() * 1000)
    return DailySalt.load(file, now - days_ago * DAY_MS).pseudonym(f"client:{CLIENT}".encode()).hex()


def test_the_clients_rows_since_the_day_of_the_salt_are_removed(erase: Erase, tmp_path: Path) -> None:
    wait_for_room_in_the_day()
    today = datetime.now(UTC).date()
    sink, salt, backup = pipeline.warehouse(tmp_path).sink("kafka-2"), tmp_path / "traffic.salt", tmp_path / "backup"
    SharedKey.create(salt)
    names = [salt_of(salt, 2)]
    backup.write_bytes(salt.read_bytes())
    backup.chmod(0o600)
    names += [salt_of(salt, 1), salt_of(salt, 0)]
    assert len(set(names)) == 3
    write(sink, 0, [event(f"{number}", DAY, name) for number, name in enumerate(names)])
    code, text = erase(CLIENT)
    assert (code, ids(sink)) == (0, ["0", "1"]), text
    assert "removed 1 row of the tables and 0 lines of files" in text
    assert f"of {today} (UTC): earlier pseudonyms cannot be computed" in text
    assert "run this again" in text, "Kafka may have more"

    before = backup.read_bytes()
    code, text = erase(CLIENT, "--salt-file", str(backup), "--json")
    shown = json.loads(text)
    assert (code, ids(sink), shown["rows"], shown["pseudonyms"]) == (0, [], 2, sorted(names))
    assert shown["days"] == [f"{today - timedelta(days=ago)}" for ago in (2, 1, 0)]
    assert backup.read_bytes() == before, "it is only read"


def test_a_pseudonym_needs_no_salt_and_files_no_tables(erase: Erase, tmp_path: Path) -> None:
    folder, life = tmp_path / "traffic" / "in", Life("websocket-1", 1, BEGIN, BEGIN)
    file = write_lines(folder, "0.jsonl", [life.event(Type.CONNECT, BEGIN, client) for client in (0xA1, 0xB2, 0xC3)])
    code, text = erase("--pseudonym", f"{0xA1:016x}", "--pseudonym", f"{0xB2:016x}")
    assert (code, text) == (0, "removed 0 rows of the tables and 2 lines of files\n")
    assert file.read_text().count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "give the id of a client, or a --pseudonym"),
        (("--pseudonym", "' OR true --"), "a --pseudonym is 16 hexadecimal digits"),
        ((CLIENT,), "traffic.salt"),
    ],
)
def test_what_cannot_be_looked_for_is_one_clear_error(erase: Erase, arguments: tuple[str, ...], expected: str) -> None:
    code, text = erase(*arguments)
    assert (code, expected in text, len(text.splitlines())) == (2, True, 1), text
