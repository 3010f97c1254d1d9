"""Files of events: complete once visible, bounded, and recovered after the death of their process."""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from diem.traffic.sinks import BLOCK_BYTES, Files, FileSink, NoRoom, SinkUnavailable

BOOT, EARLIER = "0123456789ab", "ba9876543210"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def made(directory: Path, clock: Clock, **bounds: int) -> Files:
    return Files(directory, "websocket-1", BOOT, clock, **{"max_bytes": 1 << 20, **bounds})


def there(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((directory / "in").iterdir())}


def left_behind(directory: Path, content: bytes, edge: str = "websocket-1") -> Path:
    (directory / "in").mkdir(exist_ok=True)
    path = directory / "in" / f".{edge}-{EARLIER}-3.jsonl"
    path.write_bytes(content)
    return path


def test_a_file_is_seen_when_it_is_complete(tmp_path: Path, clock: Clock) -> None:
    files = made(tmp_path, clock)
    files.write([b"1", b"2"])
    files.write([b"3"])
    assert there(tmp_path) == {f".websocket-1-{BOOT}-1.jsonl": b"1\n2\n3\n"}
    assert not files.is_due
    clock.now += 60
    assert files.is_due
    files.write([])
    assert there(tmp_path) == {f"websocket-1-{BOOT}-1.jsonl": b"1\n2\n3\n"}
    files.write([b"4"])
    files.finish()
    files.finish()
    assert there(tmp_path)[f"websocket-1-{BOOT}-2.jsonl"] == b"4\n"


def test_a_full_file_is_followed_by_another_one(tmp_path: Path, clock: Clock) -> None:
    files = made(tmp_path, clock, file_bytes=10)
    for number in range(5):
        files.write([b"%d" % number * 4])
    files.finish()
    assert list(there(tmp_path).values()) == [b"0000\n1111\n", b"2222\n3333\n", b"4444\n"]


def test_nobody_else_may_read_them(tmp_path: Path, clock: Clock) -> None:
    files = made(tmp_path / "traffic", clock)
    files.write([b"1"])
    files.finish()
    (path,) = (tmp_path / "traffic" / "in").iterdir()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_nothing_is_written_beyond_what_may_be_unread_until_somebody_has_read(tmp_path: Path, clock: Clock) -> None:
    files = made(tmp_path, clock, max_bytes=20, file_bytes=8)
    files.write([b"x" * 9])
    files.write([b"y" * 9])
    with pytest.raises(NoRoom, match="that nobody has read"):
        files.write([b"z"])
    assert list(there(tmp_path).values()) == [b"x" * 9 + b"\n", b"y" * 9 + b"\n"]
    (tmp_path / "in" / f"websocket-1-{BOOT}-1.jsonl").unlink()
    files.write([b"z"])
    files.finish()
    assert b"z\n" in there(tmp_path).values()


def test_what_a_killed_process_left_behind_is_completed_without_half_a_line(tmp_path: Path, clock: Clock) -> None:
    left_behind(tmp_path, b'{"a":1}\n{"b":2}\n{"c"')
    files = made(tmp_path, clock)
    assert files.is_due
    files.write([])
    assert there(tmp_path) == {f"websocket-1-{EARLIER}-3.jsonl": b'{"a":1}\n{"b":2}\n'}


@pytest.mark.parametrize("tail", [b"", b"x" * 1000, b"x" * (3 * BLOCK_BYTES)])
def test_half_a_line_may_have_any_length(tmp_path: Path, clock: Clock, tail: bytes) -> None:
    whole = b"y" * BLOCK_BYTES + b"\n"
    left_behind(tmp_path, whole + tail)
    made(tmp_path, clock).recover()
    assert list(there(tmp_path).values()) == [whole]


@pytest.mark.parametrize("content", [b"", b"half"])
def test_a_file_without_a_whole_line_is_removed(tmp_path: Path, clock: Clock, content: bytes) -> None:
    left_behind(tmp_path, content)
    made(tmp_path, clock).recover()
    assert there(tmp_path) == {}


def test_files_of_other_processes_are_left_alone(tmp_path: Path, clock: Clock) -> None:
    left_behind(tmp_path, b"1\n", "websocket-11")
    left_behind(tmp_path, b"1\n", "composite-1.websocket-1")
    before = there(tmp_path)
    made(tmp_path, clock).recover()
    assert there(tmp_path) == before


def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path, clock: Clock) -> None:
    writing = made(tmp_path, clock)
    writing.write([b"1"])
    namesake = Files(tmp_path, "websocket-1", EARLIER, clock, max_bytes=1 << 20)
    namesake.recover()
    writing.write([b"2"])
    writing.finish()
    assert there(tmp_path) == {f"websocket-1-{BOOT}-1.jsonl": b"1\n2\n"}


def test_what_could_be_written_only_in_part_is_not_there(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = made(tmp_path, clock)
    files.write([b"before"])
    write = os.write
    full = iter([True, False])

    def short(file: int, data: memoryview) -> int:
        if next(full):
            return write(file, data[:3])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", short)
        with pytest.raises(OSError, match="No space left"):
            files.write([b"lost"])
    files.write([b"after"])
    files.finish()
    assert list(there(tmp_path).values()) == [b"before\nafter\n"]


def test_a_file_that_cannot_be_cut_is_left_to_the_next_life(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = made(tmp_path, clock)
    files.write([b"before"])

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        patch.setattr(os, "ftruncate", fail)
        with pytest.raises(OSError, match="Input/output"):
            files.write([b"lost"])
    files.write([b"after"])
    files.finish()
    Files(tmp_path, "websocket-1", EARLIER, clock, max_bytes=1 << 20).recover()
    assert list(there(tmp_path).values()) == [b"before\n", b"after\n"]


def test_a_file_that_cannot_be_locked_is_not_kept(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(37, "No locks available")

    def note(file: int) -> None:
        closed.append(file)
        close(file)

    closed, close = list[int](), os.close
    monkeypatch.setattr(fcntl, "flock", fail)
    monkeypatch.setattr(os, "close", note)
    with pytest.raises(OSError, match="No locks"):
        made(tmp_path, clock).write([b"lost"])
    assert (len(closed), there(tmp_path)) == (1, {})


def test_a_file_that_could_not_be_shown_is_seen_as_soon_as_it_can_be(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = made(tmp_path, clock)
    files.write([b"before"])
    clock.now += 60

    def fail(*_: object) -> Path:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises(PermissionError):
            files.write([b"after"])
    assert files.is_due
    files.write([b"after"])
    files.finish()
    assert there(tmp_path) == {f"websocket-1-{BOOT}-{n}.jsonl": text for n, text in ((1, b"before\n"), (2, b"after\n"))}


async def test_the_sink_reports_the_reason_of_a_failure(tmp_path: Path, clock: Clock) -> None:
    full = FileSink(made(tmp_path, clock, max_bytes=1, file_bytes=1))
    await full.write([b"1"])
    with pytest.raises(SinkUnavailable) as room:
        await full.write([b"2"])
    assert room.value.reason == "room"
    (tmp_path / "file").touch()
    nowhere = FileSink(made(tmp_path / "file", clock))
    with pytest.raises(SinkUnavailable) as disk:
        await nowhere.write([b"1"])
    assert disk.value.reason == "disk"
    await nowhere.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=False).returncode:
        pytest.skip("no tmpfs can be mounted")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.root
def test_on_a_disk_that_is_really_full_whole_lines_stay_and_writing_goes_on(small_disk: Path, clock: Clock) -> None:
    files = made(small_disk, clock)
    line = b"x" * 10_000
    written = 0
    with pytest.raises(OSError, match="No space left"):
        for _ in range(20):
            files.write([line])
            written += 1
    files.finish()
    assert 1 <= written < 8
    (path,) = (small_disk / "in").iterdir()
    assert path.read_bytes() == (line + b"\n") * written
    path.unlink()
    files.write([line])
    files.finish()
    assert list(there(small_disk).values()) == [line + b"\n"]
