"""Keys that sign tokens: files, rotation without a restart, faults."""

import os
from collections import deque
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from diem.process.auth import BadKeyFile, SharedKey
from diem.process.clock import ManualClock
from diem.tokens.key_set import parse_key_set
from diem.tokens.verifier import Verifier
from services.data.access import signing
from services.data.access.keys import ApiKeys, new_key
from services.data.access.plans import AccessPlan
from services.data.access.signing import (
    MAX_FILES,
    PUBLISHED_BEFORE_USE_S,
    REMOVED_AFTER_S,
    RETIRED_AFTER_S,
    SigningKeys,
    TooManySigningKeys,
)
from services.data.access.tokens import IssuedToken, TokenRequest, Tokens
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


def states(keys: SigningKeys) -> list[tuple[str, str, float | None]]:
    return [(each.key.kid, each.state.value, each.until_s) for each in keys.status()]


def test_a_rotation_is_visible_from_the_first_second_to_the_removal_of_the_file(bench: Bench) -> None:
    keys = bench.keys()
    old = keys.signing().kid
    assert states(keys) == [(old, "signing", None)]
    bench.clock.advance(3600)
    signs_at = bench.now + PUBLISHED_BEFORE_USE_S
    new = keys.rotate().kid
    # Without any delay for the next look at the files.
    assert states(keys) == [(old, "signing", signs_at), (new, "published", signs_at)]
    assert kids(keys) == [old, new]
    bench.clock.advance(PUBLISHED_BEFORE_USE_S)
    assert states(keys) == [(old, "verifying", signs_at + RETIRED_AFTER_S), (new, "signing", None)]
    bench.clock.advance(RETIRED_AFTER_S)
    assert states(keys) == [(old, "retired", None), (new, "signing", None)]
    assert kids(keys) == [new]
    bench.clock.advance(REMOVED_AFTER_S - 2)
    assert states(keys) == [(old, "retired", None), (new, "signing", None)]
    bench.clock.advance(2)
    assert kids(keys) == [new]
    assert [path.stem for path in bench.directory.iterdir()] == [new]
    bench.clock.advance(2)
    assert states(keys) == [(new, "signing", None)]


def test_a_wall_clock_that_is_ahead_for_a_while_removes_no_key(bench: Bench) -> None:
    keys = bench.keys()
    old = keys.signing().kid
    bench.clock.advance(3600)
    new = keys.rotate().kid
    bench.clock.step_wall(365 * 86_400)
    bench.clock.advance(REMOVED_AFTER_S - 2)
    assert kids(keys) == [new]
    bench.clock.step_wall(-365 * 86_400 - REMOVED_AFTER_S)
    bench.clock.advance(3)
    assert kids(keys) == [old, new]
    assert len(list(bench.directory.iterdir())) == 2


def test_a_rotation_makes_room_by_removing_retired_keys_only(bench: Bench) -> None:
    keys = bench.keys()
    bench.clock.advance(3600)
    made = [keys.rotate().kid for _ in range(MAX_FILES - 1)]
    with pytest.raises(TooManySigningKeys):
        keys.rotate()
    assert len(list(bench.directory.iterdir())) == MAX_FILES
    bench.clock.advance(PUBLISHED_BEFORE_USE_S + RETIRED_AFTER_S)
    newest = keys.rotate().kid
    signs = keys.signing().kid
    assert signs in made
    assert kids(keys) == [signs, newest]
    assert {path.stem for path in bench.directory.iterdir()} == {signs, newest}


def test_a_retired_key_that_cannot_be_removed_is_only_reported(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = bench.keys()
    bench.clock.advance(3600)
    new = keys.rotate().kid
    bench.clock.advance(PUBLISHED_BEFORE_USE_S + RETIRED_AFTER_S)
    assert kids(keys) == [new]

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(30, "Read-only file system")

    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(Path, "unlink", refuse)
        bench.clock.advance(REMOVED_AFTER_S)
        assert kids(keys) == [new]
        bench.clock.advance(REMOVED_AFTER_S - 2)
        assert kids(keys) == [new]
    assert [line["event"] for line in logs] == ["retired keys for client tokens not removed"]
    bench.clock.advance(2)
    assert kids(keys) == [new]
    assert [path.stem for path in bench.directory.iterdir()] == [new]


async def test_no_token_is_refused_by_an_edge_during_rotations(bench: Bench) -> None:
    keys = bench.keys()
    api_key, _ = new_key("a test", "p", bench.clock.wall_ms())
    tokens, plan = Tokens(ApiKeys([api_key]), keys, bench.clock), AccessPlan("p")
    bench.clock.advance(3600)
    edge = Verifier()
    valid: deque[IssuedToken] = deque()
    signed_by: list[str] = []
    for second in range(0, int(2 * RETIRED_AFTER_S) + 600, 10):
        # An edge that polls as rarely as any, each time just before a rotation.
        if second % 20 == 0:
            edge.replace_keys(parse_key_set(tokens.document().body, secrets=False).keys)
        if second in {600, 640}:
            keys.rotate()
        valid.append(await tokens.mint(api_key, plan, TokenRequest()))
        while valid[0].expires < bench.now:
            valid.popleft()
        claims = [edge.verify(each.token, bench.now) for each in valid]
        signed_by.append(claims[-1].signed_by.kid if claims[-1].signed_by is not None else "")
        assert (await tokens.verify(valid[0].token))[1] is api_key
        bench.clock.advance(10)
    assert list(dict.fromkeys(signed_by)) == [each.key.kid for each in keys.status()]
    assert len(kids(keys)) == 1


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
    for known in (1, 2):
        bench.add(f"new-{known}")
        bench.clock.advance(1.9)
        assert len(kids(keys)) == known
        bench.clock.advance(0.1)
        assert len(kids(keys)) == known + 1


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
