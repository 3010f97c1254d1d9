import hashlib
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests

from deploy.jars import JarSet, JarsUnavailable, locked
from deploy.kafka.jars import JARS
from tests.support.patience import PATIENCE_S

CONTENTS = {f"org.example:part-{letter}:1.0": letter.encode() * 100 for letter in "abc"}
LOCK_TEXT = "# made\n" + "".join(f"{name} {hashlib.sha256(data).hexdigest()}\n" for name, data in CONTENTS.items())

DOWNLOADER = """
import sys, time
from pathlib import Path
from deploy.jars import JarSet
from tests.unit.deploy.test_jars import Registry

directory = Path(sys.argv[1])
jars = JarSet("test", directory / "jars.lock", "a test", "")

class Slow(Registry):
    def __call__(self, coordinate, scratch):
        with (directory / "calls").open("a") as calls:
            calls.write(f"{coordinate}\\n")
        while not (directory / "go").exists():
            time.sleep(0.01)
        return super().__call__(coordinate, scratch)

(directory / f"started-{sys.argv[2]}").touch()
print(len(jars.prepare(directory=directory / "cache", fetch=Slow())))
"""


class Registry:
    """In-memory registry of jars; records the requests."""

    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        self.contents = CONTENTS | (contents or {})
        self.requested: list[str] = []

    def __call__(self, coordinate: str, scratch: Path) -> Path:
        self.requested.append(coordinate)
        assert list(scratch.iterdir()) == []
        found = scratch / "sub" / "some.jar"
        found.parent.mkdir()
        found.write_bytes(self.contents[coordinate])
        return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def jars(tmp_path: Path) -> JarSet:
    lock = tmp_path / "jars.lock"
    lock.write_text(LOCK_TEXT)
    return replace(JARS, lock=lock)


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*") if path.name != "lock")


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_lock_file_names_exact_versions_of_everything_but_the_tools() -> None:
    jars = locked(JARS.lock.read_text())
    assert len(jars) == 44
    assert [jar.coordinate for jar in jars] == sorted({jar.coordinate for jar in jars})
    assert all(jar.coordinate.count(":") == 2 and len(bytes.fromhex(jar.sha256)) == 32 for jar in jars)
    assert "org.apache.kafka:kafka_2.13:4.4.0" in {jar.coordinate for jar in jars}
    assert not any("kafka-tools-api" in jar.coordinate for jar in jars)


def test_jars_are_downloaded_once_and_always_in_the_same_order(jars: JarSet, directory: Path) -> None:
    registry = Registry()
    seen: list[tuple[int, int]] = []
    paths = jars.prepare(lambda there, total: seen.append((there, total)), directory=directory, fetch=registry)
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert jars.prepare(directory=directory, fetch=registry) == paths == tuple(sorted(paths))
    assert len(registry.requested) == 3
    assert files(directory) == sorted(path.name for path in paths)


def test_broken_jar_is_replaced(jars: JarSet, directory: Path) -> None:
    paths = jars.prepare(directory=directory, fetch=Registry())
    paths[1].write_bytes(paths[1].read_bytes()[:50])
    registry = Registry()
    jars.prepare(directory=directory, fetch=registry)
    assert registry.requested == ["org.example:part-b:1.0"]
    assert paths[1].read_bytes() == b"b" * 100


def test_wrong_checksum_is_a_one_line_error_and_leaves_nothing(jars: JarSet, directory: Path) -> None:
    with pytest.raises(JarsUnavailable, match=r"part-a:1\.0 was downloaded with a wrong checksum") as raised:
        jars.prepare(directory=directory, fetch=Registry({"org.example:part-a:1.0": b"evil"}))
    assert "\n" not in str(raised.value)
    assert "--bootstrap-servers" in str(raised.value)
    assert files(directory) == []


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), JarsUnavailable("no network")])
def test_interrupted_download_keeps_complete_jars_only(
    jars: JarSet, directory: Path, interruption: BaseException
) -> None:
    registry = Registry()

    def interrupted(coordinate: str, scratch: Path) -> Path:
        if "part-b" in coordinate:
            (scratch / "half.jar").write_bytes(b"b" * 50)
            raise interruption
        return registry(coordinate, scratch)

    with pytest.raises(type(interruption)):
        jars.prepare(directory=directory, fetch=interrupted)
    assert files(directory) == ["org.example-part-a-1.0.jar"]
    jars.prepare(directory=directory, fetch=registry)
    assert registry.requested == list(CONTENTS)


def test_leftovers_of_a_killed_process_are_removed(jars: JarSet, directory: Path) -> None:
    (directory / "partial" / "sub").mkdir(parents=True)
    (directory / "partial" / "sub" / "some.jar").write_bytes(b"half")
    jars.prepare(directory=directory, fetch=Registry())
    assert not (directory / "partial").exists()


def test_two_processes_download_each_jar_once(tmp_path: Path) -> None:
    (tmp_path / "jars.lock").write_text(LOCK_TEXT)

    def start(name: str) -> "subprocess.Popen[str]":
        argv = [sys.executable, "-c", DOWNLOADER, str(tmp_path), name]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)

    with start("one") as one:
        eventually((tmp_path / "calls").exists)
        with start("two") as two:
            eventually((tmp_path / "started-two").exists)
            (tmp_path / "go").touch()
            answers = [process.communicate(timeout=PATIENCE_S)[0] for process in (one, two)]
    assert answers == ["3\n", "3\n"]
    assert (tmp_path / "calls").read_text().split() == list(CONTENTS)


def test_unwritable_cache_is_a_one_line_error(jars: JarSet, directory: Path) -> None:
    directory.write_text("a file is here")
    with pytest.raises(JarsUnavailable, match="cannot be written") as raised:
        jars.prepare(directory=directory, fetch=Registry())
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (requests.ConnectionError("HTTPSConnectionPool: Max retries exceeded\nand so on"), "(ConnectionError)"),
        (requests.Timeout("read timed out"), "(Timeout)"),
        (SimpleNamespace(status_code=404), "is not in the registry"),
    ],
)
def test_network_failure_is_one_short_line(
    jars: JarSet, directory: Path, monkeypatch: pytest.MonkeyPatch, answer: object, expected: str
) -> None:
    def request(*_: object, **__: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("requests.request", request)
    with pytest.raises(JarsUnavailable) as raised:
        jars.prepare(directory=directory)
    assert expected in str(raised.value)
    assert len(str(raised.value)) < 200
    assert "\n" not in str(raised.value)
    assert files(directory) == []


def test_missing_downloader_is_a_one_line_error(jars: JarSet, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    with pytest.raises(JarsUnavailable, match="pip install jgo"):
        jars.prepare(directory=directory)


@pytest.mark.parametrize(
    ("xdg", "expected"),
    [
        ("/elsewhere", "/elsewhere/diem/kafka-4.4.0"),
        ("not/absolute", "/home/me/.cache/diem/kafka-4.4.0"),
        ("", "/home/me/.cache/diem/kafka-4.4.0"),
    ],
)
def test_cache_follows_the_xdg_specification(monkeypatch: pytest.MonkeyPatch, xdg: str, expected: str) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    assert JARS.cache_directory() == Path(expected)
