"""Which jars PySpark's wheel has."""

import zipfile
from pathlib import Path

import pytest

from deploy.jars import locked
from requirements.bundled_jars import LOCK, UnknownJar, bundled, coordinate, wheel
from tests.support.required import unavailable


def made(path: Path, *poms: tuple[str, str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
        for group, artifact, version in poms:
            jar.writestr(f"META-INF/maven/{group}/{artifact}/pom.properties", f"version={version}\n")
    return path


def test_lock_file_has_the_jars_of_the_wheel() -> None:
    if (jars := wheel()) is None:
        unavailable("PySpark", ModuleNotFoundError("pyspark"))
    assert list(locked(LOCK.read_text())) == list(bundled(jars))
    assert len(locked(LOCK.read_text())) > 200


def test_a_jar_is_what_maven_wrote_into_it_and_not_one_of_those_that_it_holds(tmp_path: Path) -> None:
    shaded = made(tmp_path / "one-two-1.0-linux.jar", ("org.other", "one", "9"), ("org.one", "one-two", "1.0"))
    assert coordinate(shaded) == "org.one:one-two:1.0"


def test_a_jar_that_names_no_group_has_that_of_its_artifact(tmp_path: Path) -> None:
    assert coordinate(made(tmp_path / "lz4-java-1.8.0.jar")) == "org.lz4:lz4-java:1.8.0"
    with pytest.raises(UnknownJar, match=r"nobody-1\.0\.jar names no group"):
        coordinate(made(tmp_path / "nobody-1.0.jar"))
