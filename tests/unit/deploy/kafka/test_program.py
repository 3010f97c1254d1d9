from pathlib import Path

import pytest

from deploy.kafka import program

VERSION = """[ "$1" = -version ] && { echo 'openjdk version "17.0.1"'; exit; }"""
IS_CHECKING = 'case "$*" in *VerifySharedSpaces*) '
WRITES = """
trap 'echo classes > "${1#-XX:ArchiveClassesAtExit=}"; exit 143' TERM
echo "Kafka Server started"
while :; do sleep 0.02; done
"""
FAILS = "exit 1"


class FakeJava:
    """A Java that counts its runs of a broker."""

    def __init__(self, directory: Path, broker: str, check: str = "exit 0") -> None:
        self.path = directory / "java"
        self._runs = directory / "runs"
        self.path.write_text(f"#!/bin/sh\n{VERSION}\n{IS_CHECKING} {check};; esac\necho run >>{self._runs}\n{broker}\n")
        self.path.chmod(0o755)

    @property
    def runs(self) -> int:
        return len(self._runs.read_text().splitlines())


@pytest.fixture
def jars(tmp_path: Path) -> tuple[Path, ...]:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "a.jar").touch()
    return (cache / "a.jar",)


def files(jars: tuple[Path, ...]) -> set[str]:
    return {path.suffix for path in jars[0].parent.iterdir() if path.name != "lock"}


def test_archive_is_made_once(tmp_path: Path, jars: tuple[Path, ...]) -> None:
    java = FakeJava(tmp_path, WRITES)
    made = program.prepare_archive(java.path, jars)
    assert made is not None
    assert made.read_text() == "classes\n"
    assert program.prepare_archive(java.path, jars) == made
    assert java.runs == 1
    assert files(jars) == {".jar", ".jsa"}


def test_archive_for_other_jars_is_replaced(tmp_path: Path, jars: tuple[Path, ...]) -> None:
    java = FakeJava(tmp_path, WRITES)
    first = program.prepare_archive(java.path, jars)
    (jars[0].parent / "recording-killed").mkdir()
    jars[0].unlink()
    (jars[0].parent / "b.jar").touch()
    second = program.prepare_archive(java.path, (jars[0].parent / "b.jar",))
    assert first is not None
    assert second is not None
    assert first != second
    assert sorted(path.name for path in jars[0].parent.iterdir()) == ["b.jar", second.name, "lock"]


def test_failure_to_make_an_archive_is_remembered(tmp_path: Path, jars: tuple[Path, ...]) -> None:
    java = FakeJava(tmp_path, FAILS)
    assert program.prepare_archive(java.path, jars) is None
    assert program.prepare_archive(java.path, jars) is None
    assert java.runs == 1
    assert files(jars) == {".jar", ".none"}


def test_archive_that_crashes_java_is_discarded(tmp_path: Path, jars: tuple[Path, ...]) -> None:
    java = FakeJava(tmp_path, WRITES, check="exit 134")
    assert program.prepare_archive(java.path, jars) is None
    assert files(jars) == {".jar", ".none"}
