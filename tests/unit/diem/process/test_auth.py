import os
from pathlib import Path

import pytest

from diem.process.auth import BadKeyFile, SharedKey, is_private, read_secret
from tests.support.file_owners import OTHER, give_away, needs_root


def written(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_created_key_is_private_random_and_loadable(tmp_path: Path) -> None:
    path = tmp_path / "k"
    key = SharedKey.create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert SharedKey.load(path).matches(key.header)
    assert not SharedKey.create(tmp_path / "other").matches(key.header)
    assert len(path.read_text().strip()) >= 43


def test_create_keeps_the_key_that_is_there_and_leaves_nothing_behind(tmp_path: Path) -> None:
    first = SharedKey.create(tmp_path / "k")
    assert SharedKey.create(tmp_path / "k").header == first.header
    assert os.listdir(tmp_path) == ["k"]  # noqa: PTH208  # names are what is compared


def test_create_takes_the_key_of_a_quicker_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "k"
    quicker = SharedKey.create(path)
    monkeypatch.setattr(Path, "exists", lambda _self: False)
    assert SharedKey.create(path).header == quicker.header


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o444, 0o660, 0o620, 0o650])
def test_key_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path / "k", b"x" * 43, mode)
    with pytest.raises(BadKeyFile, match="chmod 600"):
        SharedKey.load(path)


def test_key_file_that_our_own_group_may_read_is_accepted(tmp_path: Path) -> None:
    """As Secret volumes of Kubernetes with ``fsGroup``, for a process that is in this group."""
    for mode in (0o440, 0o640):
        os.chown(path := written(tmp_path / f"{mode:o}", b"x" * 43, mode), -1, os.getegid())
        SharedKey.load(path)


@pytest.mark.parametrize("mode", [0o440, 0o640])
def test_key_file_that_another_group_may_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    path = written(tmp_path / "k", b"x" * 43, mode)
    real = os.fstat

    def of_group(group: int) -> None:
        def fstat(descriptor: int) -> os.stat_result:
            fields = list(real(descriptor))
            fields[4:6] = [OTHER, group]
            return os.stat_result(fields)

        monkeypatch.setattr(os, "fstat", fstat)

    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    of_group(OTHER)
    with pytest.raises(BadKeyFile, match="mode 0440 and our group"):
        SharedKey.load(path)
    monkeypatch.setattr(os, "getgroups", lambda: [OTHER])
    SharedKey.load(path)


def test_only_of_files_of_root_the_group_of_root_may_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd's credentials are such files: the mode shows the mask of their access list for the service's user."""
    monkeypatch.setattr(os, "getegid", lambda: OTHER)
    monkeypatch.setattr(os, "getgroups", list)

    def status(mode: int, user: int, group: int) -> os.stat_result:
        return os.stat_result((mode, 0, 0, 0, user, group, 0, 0, 0, 0))

    assert is_private(status(0o100440, 0, 0))
    assert not is_private(status(0o100440, OTHER, 0))
    assert not is_private(status(0o100440, 0, OTHER + 1))
    assert is_private(status(0o100440, 0, OTHER))
    assert not is_private(status(0o100444, 0, 0))


def test_other_secrets_are_text_of_files_with_the_same_rules(tmp_path: Path) -> None:
    assert read_secret(written(tmp_path / "s", " pässword\n".encode())) == "pässword"
    for content, why in ((b"\xff", "UTF-8"), (b" \n", "empty"), (b"x" * 4097, "4096 characters")):
        with pytest.raises(BadKeyFile, match=why):
            read_secret(written(tmp_path / "s", content))
    with pytest.raises(BadKeyFile, match="others may read it"):
        read_secret(written(tmp_path / "s", b"secret", 0o644))


@needs_root
def test_key_file_of_another_user_is_refused_although_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = give_away(written(tmp_path / "k", b"x" * 43))
    with pytest.raises(BadKeyFile, match="belongs to user 12345"):
        SharedKey.load(path)
    with pytest.raises(BadKeyFile, match="belongs to user 12345"):
        SharedKey.create(path)


@needs_root
def test_key_file_of_root_is_accepted_by_any_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "k", b"x" * 43)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    SharedKey.load(path)


@pytest.mark.parametrize("content", [b"", b"short", b"two words of a key file", b"\xff" * 40, b"x" * 5000])
def test_file_without_a_key_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(BadKeyFile, match="a key"):
        SharedKey.load(written(tmp_path / "k", content))


def test_missing_key_file_and_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadKeyFile, match="No such file"):
        SharedKey.load(tmp_path / "k")
    with pytest.raises(BadKeyFile, match="Is a directory"):
        SharedKey.load(tmp_path)


def test_missing_or_unreadable_key_file_comes_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadKeyFile, match=r"No such file or directory: ask Alice$"):
        SharedKey.load(tmp_path / "k", missing="ask Alice")

    def refuse(*_arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    with pytest.raises(BadKeyFile, match=r"Permission denied for user 12345: .* mode 0440 and our group"):
        SharedKey.load(tmp_path / "k", missing="ask Alice")


def test_named_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "k", 0o600)
    with pytest.raises(BadKeyFile, match="not a regular file"):
        SharedKey.load(tmp_path / "k")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("Bearer 0123456789abcdef", True),
        ("bearer 0123456789abcdef", True),
        ("Bearer 0123456789abcdeF", False),
        ("Bearer 0123456789abcdef0", False),
        ("Basic 0123456789abcdef", False),
        ("0123456789abcdef", False),
        ("Bearer", False),
        ("Bearer kläf", False),
        ("", False),
        (None, False),
    ],
)
def test_only_the_bearer_of_the_key_matches(header: str | None, expected: bool) -> None:
    assert SharedKey("0123456789abcdef").matches(header) is expected


def test_key_shows_in_no_text() -> None:
    key = SharedKey("0123456789abcdef")
    assert "0123" not in f"{key!r} {key}"
