"""Keys that sign tokens: files, rotation without a restart, faults."""

import os
from pathlib import Path

import pytest

from diem.process.auth import BadKeyFile, SharedKey
from diem.process.clock import ManualClock
from services.data.access import signing
from services.data.access.signing import MAX_FILES, PUBLISHED_BEFORE_USE_S, RETIRED_AFTER_S, SigningKeys
from tests.support.file_owners import give_away, needs_root


class Bench:
    """A directory whose files change at times that the test chooses."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.clock = ManualClock(wall_ms=1_800_000_000_000)
        self._changed: dict[Path, float] = {}
        found = signing._files

        def files(directory: Path) -> tuple[tuple[Path, int, int, int], ...]:
            return tuple(
                (path, inode, int(self._changed.setdefault(path, self.now) * 1e9), size)
                for path, inode, _, size in found(directory)
            )

        # The time of the last change cannot be set, by anybody.
        monkeypatch.setattr(signing, "_files", files)

    @property
    def now(self) -> float:
        return self.clock.wall_ms() / 1000

    def keys(self) -> SigningKeys:
        made = SigningKeys(self.directory, self.clock)
        made.load()
        return made

    def add(self, kid: str) -> Path:
        path = self.directory / f"{kid}.key"
        SharedKey.create(path)
        self._changed[path] = self.now
        return path


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path / "token-keys", monkeypatch)


def kids(keys: SigningKeys) -> list[str]:
    return [key.kid for key in keys.published()]


def test_the_first_start_makes_one_private_key_that_later_starts_use(bench: Bench) -> None:
    first = bench.keys()
    (path,) = bench.directory.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert bench.directory.stat().st_mode & 0o777 == 0o700
    assert path.stem.startswith("20270115T080000-")
    assert kids(first) == [first.signing().kid] == [path.stem]
    again = bench.keys()
    assert again.signing().public == first.signing().public
    assert bench.keys().signing().private.public_key().public_bytes_raw() == first.signing().public.material


def test_a_new_key_is_published_at_once_and_signs_when_verifiers_have_it(bench: Bench) -> None:
    keys = bench.keys()
    bench.clock.advance(3600)
    old = keys.signing().kid
    bench.add("new")
    bench.clock.advance(2)
    assert kids(keys) == [old, "new"]
    assert keys.signing().kid == old
    bench.clock.advance(PUBLISHED_BEFORE_USE_S - 2.1)
    assert keys.signing().kid == old
    bench.clock.advance(0.2)
    assert keys.signing().kid == "new"
    # A restart in the middle of it changes nothing.
    assert bench.keys().signing().kid == "new"
    assert kids(keys) == [old, "new"]


def test_the_old_key_is_published_until_its_last_token_has_expired(bench: Bench) -> None:
    keys = bench.keys()
    bench.clock.advance(3600)
    old = keys.signing().kid
    bench.add("new")
    bench.clock.advance(2)
    bench.clock.advance(PUBLISHED_BEFORE_USE_S + RETIRED_AFTER_S - 2.1)
    assert kids(keys) == [old, "new"]
    bench.clock.advance(0.2)
    assert kids(keys) == ["new"]
    assert kids(bench.keys()) == ["new"]


def test_a_removed_file_withdraws_its_key_at_once(bench: Bench) -> None:
    keys = bench.keys()
    bench.clock.advance(3600)
    old = keys.signing().kid
    bench.add("new")
    bench.clock.advance(2)
    assert kids(keys) == [old, "new"]
    (bench.directory / f"{old}.key").unlink()
    bench.clock.advance(2)
    assert kids(keys) == ["new"]
    # It signs though verifiers may not have it yet: there is no other.
    assert keys.signing().kid == "new"


def test_faults_while_running_keep_the_keys_that_were_read(bench: Bench) -> None:
    keys = bench.keys()
    old = kids(keys)
    path = bench.add("broken")
    path.write_text("short")
    bench.clock.advance(2)
    assert kids(keys) == old
    path.unlink()
    for each in bench.directory.iterdir():
        each.unlink()
    bench.clock.advance(2)
    assert kids(keys) == old
    bench.directory.rmdir()
    bench.clock.advance(2)
    assert kids(keys) == old


def test_files_are_looked_at_every_two_seconds_at_most(bench: Bench) -> None:
    keys = bench.keys()
    bench.add("new")
    bench.clock.advance(1.9)
    assert len(kids(keys)) == 1
    bench.clock.advance(0.1)
    assert len(kids(keys)) == 2


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_directory_that_others_may_write_is_refused(bench: Bench, mode: int) -> None:
    bench.directory.mkdir()
    bench.directory.chmod(mode)
    with pytest.raises(BadKeyFile, match="others may write"):
        bench.keys()


@needs_root
def test_a_directory_or_file_of_another_user_is_refused(bench: Bench) -> None:
    bench.directory.mkdir(mode=0o700)
    give_away(bench.add("foreign"))
    with pytest.raises(BadKeyFile, match="belongs to user"):
        bench.keys()
    give_away(bench.directory)
    with pytest.raises(BadKeyFile, match="belongs to user"):
        bench.keys()


def test_bad_files_are_named(bench: Bench) -> None:
    bench.directory.mkdir(mode=0o700)
    path = bench.add("open")
    path.chmod(0o644)
    with pytest.raises(BadKeyFile, match=r"open\.key"):
        bench.keys()
    path.rename(bench.directory / "bad name.key")
    with pytest.raises(BadKeyFile, match="bad name"):
        bench.keys()
    os.remove(bench.directory / "bad name.key")  # noqa: PTH107
    for number in range(MAX_FILES + 1):
        bench.add(f"k{number}")
    with pytest.raises(BadKeyFile, match="more than 16"):
        bench.keys()


def test_a_path_that_is_no_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadKeyFile):
        SigningKeys(tmp_path / "file", ManualClock()).load()
