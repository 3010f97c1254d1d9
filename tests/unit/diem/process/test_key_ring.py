"""Keys of internal connections in files: roles, two keys at a time, and replacement without a restart."""

from pathlib import Path

import pytest

from diem.process.auth import BadKeyFile, SharedKey
from diem.process.key_ring import CHECK_EVERY_S, EVERY_ROLE, KeyRing, KeyRole

ONE, TWO, THREE = ("one-key-of-a-test", "two-keys-of-a-test", "three-keys-of-a-test")


class Files:
    """Key files and a clock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = 0.0
        self.write("internal", ONE)
        self.ring = KeyRing(directory / "internal.key", lambda: self.now)

    def write(self, name: str, *keys: str, mode: int = 0o600) -> None:
        path = self.directory / f".{name}"
        path.write_text("".join(f"{key}\n" for key in keys))
        path.chmod(mode)
        path.rename(self.directory / f"{name}.key")
        self.now += CHECK_EVERY_S

    def accepted(self, key: str) -> frozenset[KeyRole]:
        """Return the roles of a key by its proof, and check that those of a bearer are the same."""
        found = self.ring.find(SharedKey(key).id)
        roles = found[1] if found else frozenset[KeyRole]()
        assert self.ring.roles_of_bearer(f"Bearer {key}") == roles
        return roles

    def proves(self, key: str, role: KeyRole) -> bool:
        return self.ring.key(role).id == SharedKey(key).id


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_one_key_has_every_role(files: Files) -> None:
    assert files.accepted(ONE) == EVERY_ROLE
    assert all(files.proves(ONE, role) for role in KeyRole)
    assert not files.accepted(TWO)
    assert KeyRing.of(SharedKey(ONE)).find(SharedKey(ONE).id) is not None
    assert KeyRing.of(files.ring) is files.ring


def test_the_key_of_a_role_has_that_role_alone(files: Files) -> None:
    files.write("feed", TWO)
    assert files.accepted(TWO) == {KeyRole.FEED}
    assert files.accepted(ONE) == EVERY_ROLE
    assert files.proves(TWO, KeyRole.FEED)
    assert files.proves(ONE, KeyRole.METADATA)
    (files.directory / "feed.key").unlink()
    files.now += CHECK_EVERY_S
    assert not files.accepted(TWO)
    assert files.proves(ONE, KeyRole.FEED)


def test_one_key_of_several_roles_has_them_all(files: Files) -> None:
    files.write("feed", TWO)
    files.write("metadata", TWO, THREE)
    assert files.accepted(TWO) == {KeyRole.FEED, KeyRole.METADATA}
    assert files.accepted(THREE) == {KeyRole.METADATA}


@pytest.mark.parametrize("name", ["internal", "feed"])
def test_a_key_is_replaced_without_a_restart_in_three_steps(files: Files, name: str) -> None:
    files.write(name, ONE, TWO)
    assert (bool(files.accepted(TWO)), files.proves(ONE, KeyRole.FEED)) == (True, True)
    files.write(name, TWO, ONE)
    assert (bool(files.accepted(ONE)), files.proves(TWO, KeyRole.FEED)) == (True, True)
    files.write(name, TWO)
    files.write("internal", TWO)
    assert (bool(files.accepted(ONE)), files.proves(TWO, KeyRole.FEED)) == (False, True)


def test_files_are_looked_at_once_a_second(files: Files) -> None:
    files.write("internal", TWO)
    files.now -= CHECK_EVERY_S / 2
    assert files.accepted(ONE)
    files.now += CHECK_EVERY_S / 2
    assert (files.accepted(ONE), files.accepted(TWO)) == (frozenset(), EVERY_ROLE)


@pytest.mark.parametrize(
    ("keys", "mode"), [((), 0o600), (("short",), 0o600), ((ONE, TWO, THREE), 0o600), ((TWO,), 0o644)]
)
def test_a_file_that_cannot_be_used_is_refused_at_the_start_and_keeps_the_last_keys_later(
    files: Files, keys: tuple[str, ...], mode: int
) -> None:
    for name in ("internal", "feed"):
        files.write(name, ONE)
        before = files.accepted(ONE)
        files.write(name, *keys, mode=mode)
        assert files.accepted(ONE) == before != frozenset()
        with pytest.raises(BadKeyFile):
            KeyRing.load(files.directory / "internal.key")
        files.write(name, TWO)
        assert files.accepted(TWO)


def test_a_missing_internal_key_is_refused_at_the_start_and_kept_later(files: Files) -> None:
    (files.directory / "internal.key").unlink()
    files.now += CHECK_EVERY_S
    assert files.accepted(ONE) == EVERY_ROLE
    with pytest.raises(BadKeyFile, match="No such file"):
        KeyRing.load(files.directory / "internal.key")
