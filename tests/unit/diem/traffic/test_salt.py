"""The salt of a day: the same for all processes, and nothing leads back to an earlier day."""

import re
from pathlib import Path

import pytest

from diem.process.auth import BadKeyFile, SharedKey
from diem.traffic.salt import DAY_MS, DailySalt, create_salt

NOW = 1_700_000_000_000


def test_each_day_has_its_pseudonyms_on_every_machine(tmp_path: Path) -> None:
    SharedKey.create(tmp_path / "one")
    (tmp_path / "two").write_bytes((tmp_path / "one").read_bytes())
    (tmp_path / "two").chmod(0o600)
    one = DailySalt.load(tmp_path / "one", NOW)
    today = one.pseudonym(b"client")
    assert one.advance(NOW + 5 * DAY_MS)
    two = DailySalt.load(tmp_path / "two", NOW + 5 * DAY_MS)
    assert today != one.pseudonym(b"client") == two.pseudonym(b"client") != two.pseudonym(b"another")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert DailySalt.load(tmp_path / "one", NOW + 5 * DAY_MS).pseudonym(b"client") == one.pseudonym(b"client")


def test_the_file_has_the_salt_of_today_alone(tmp_path: Path) -> None:
    path = tmp_path / "traffic.salt"
    SharedKey.create(path)
    original = path.read_text(encoding="ascii")
    salt = DailySalt.load(path, NOW)
    found = path.read_text(encoding="ascii")
    assert re.fullmatch(r"2023-11-14\.[0-9a-f]{64}\n", found)
    assert original not in found
    assert oct(path.stat().st_mode)[-3:] == "600"
    assert [each.name for each in tmp_path.iterdir()] == ["traffic.salt"]
    salt.advance(NOW + DAY_MS)
    assert path.read_text(encoding="ascii").startswith("2023-11-15.")
    # `diem up` takes it as it is.
    SharedKey.create(path)


def test_a_new_salt_is_of_today_and_an_existing_file_is_kept(tmp_path: Path) -> None:
    new, key = tmp_path / "new", tmp_path / "key"
    SharedKey.create(key)
    for path in (new, key):
        create_salt(path, NOW)
    assert new.read_text(encoding="ascii").startswith("2023-11-14.")
    assert oct(new.stat().st_mode)[-3:] == "600"
    before = {path: path.read_bytes() for path in (new, key)}
    for path in (new, key):
        create_salt(path, NOW + DAY_MS)
    assert {path: path.read_bytes() for path in (new, key)} == before
    one, two = [DailySalt.load(new, NOW).pseudonym(b"client") for _ in range(2)]
    assert one == two != DailySalt.load(key, NOW).pseudonym(b"client")
    assert new.read_bytes() == before[new]


def test_a_clock_that_is_a_day_behind_keeps_the_salt(tmp_path: Path) -> None:
    path = tmp_path / "traffic.salt"
    SharedKey.create(path)
    salt = DailySalt.load(path, NOW + DAY_MS)
    later, file = salt.pseudonym(b"client"), path.read_bytes()
    for clock in (NOW, NOW + DAY_MS):
        assert not salt.advance(clock)
        assert DailySalt.load(path, clock).pseudonym(b"client") == later
    assert path.read_bytes() == file


def test_a_salt_of_a_clock_that_was_far_ahead_is_replaced_and_changes_daily_again(tmp_path: Path) -> None:
    path = tmp_path / "traffic.salt"
    SharedKey.create(path)
    salt, other = DailySalt.load(path, NOW), DailySalt.load(path, NOW)
    first = salt.pseudonym(b"client")
    for each in (salt, other):
        each.advance(NOW + 400 * DAY_MS)
    ahead, ahead_file = salt.pseudonym(b"client"), path.read_bytes()
    # Two running processes and one that starts from the file of that time agree, on this day and on the next one.
    (tmp_path / "copy").write_bytes(ahead_file)
    (tmp_path / "copy").chmod(0o600)
    assert salt.advance(NOW)
    assert other.advance(NOW)
    started = DailySalt.load(tmp_path / "copy", NOW)
    today = salt.pseudonym(b"client")
    assert today == other.pseudonym(b"client") == started.pseudonym(b"client")
    assert today not in {first, ahead}
    assert path.read_text(encoding="ascii").startswith("2023-11-14.")
    assert salt.advance(NOW + DAY_MS)
    assert started.advance(NOW + DAY_MS)
    assert salt.pseudonym(b"client") == started.pseudonym(b"client") not in {today, ahead}


def test_a_process_that_did_not_see_the_wrong_clock_agrees_again_on_the_next_day(tmp_path: Path) -> None:
    path = tmp_path / "traffic.salt"
    SharedKey.create(path)
    salt, other = DailySalt.load(path, NOW), DailySalt.load(path, NOW)
    salt.advance(NOW + 400 * DAY_MS)
    salt.advance(NOW)
    assert not other.advance(NOW)
    assert other.pseudonym(b"client") != salt.pseudonym(b"client")
    assert salt.advance(NOW + DAY_MS)
    assert other.advance(NOW + DAY_MS)
    assert other.pseudonym(b"client") == salt.pseudonym(b"client")


def test_a_salt_that_cannot_be_written_is_used_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "traffic.salt"
    SharedKey.create(path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr("diem.traffic.salt.replace_private", refuse)
    before = path.read_bytes()
    salt = DailySalt.load(path, NOW)
    assert salt.pseudonym(b"client") == DailySalt.load(path, NOW).pseudonym(b"client")
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", ["short", "2023-11-14 and more words of it", "\xff" * 20])
def test_what_is_no_salt_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "traffic.salt"
    path.write_text(content, encoding="latin-1")
    path.chmod(0o600)
    with pytest.raises(BadKeyFile):
        DailySalt.load(path, NOW)
    path.chmod(0o644)
    with pytest.raises(BadKeyFile, match="others may read it"):
        DailySalt.load(path, NOW)


def test_a_date_that_does_not_exist_is_part_of_a_key(tmp_path: Path) -> None:
    path = tmp_path / "traffic.salt"
    path.write_text(f"2023-13-14.{'0' * 64}", encoding="ascii")
    path.chmod(0o600)
    assert DailySalt.load(path, NOW).day == NOW // DAY_MS
