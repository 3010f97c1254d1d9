"""The place of Spark's archive of classes, and what becomes of others."""

import os
from pathlib import Path

import pytest

from learning.spark import class_archive
from learning.spark.class_archive import ClassArchive, find


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of PySpark."""
    jars = tmp_path / "pyspark" / "jars"
    jars.mkdir(parents=True)
    (jars / "one.jar").touch()
    base(jars.parent).parent.mkdir(parents=True)
    base(jars.parent).touch()
    return jars.parent


def base(home: Path) -> Path:
    """The archive of Java's own classes."""
    return home.parent / "java" / "lib" / "server" / "classes.jsa"


def searched(home: Path, *, new: bool = True, **environment: str) -> ClassArchive:
    return find(
        home.parent / "java" / "bin" / "java", home, new=new, directory=home.parent / "cache", environment=environment
    )


def test_the_first_whole_run_makes_an_archive_and_others_read_it(home: Path) -> None:
    assert searched(home, new=False) == ClassArchive()
    first = searched(home)
    assert (first.archive, searched(home)) == (None, first), "not made yet"
    assert first.new_archive is not None
    first.new_archive.touch()
    first.keep()
    for new in (True, False):
        found = searched(home, new=new)
        assert found.new_archive is None
        assert found.archive is not None
        assert found.archive.exists()


def test_an_archive_of_other_jars_is_replaced(home: Path) -> None:
    for jar in ("one.jar", "two.jar"):
        (home / "jars" / jar).touch()
        made = searched(home)
        assert made.new_archive is not None
        made.new_archive.touch()
        made.keep()
    found = searched(home)
    assert list((home.parent / "cache").iterdir()) == [found.archive]


def test_installations_keep_their_archives_up_to_a_number(home: Path) -> None:
    homes = [home.with_name(f"pyspark{number}") for number in range(class_archive.MAX_ARCHIVES + 1)]
    for number, other in enumerate(homes):
        (other / "jars").mkdir(parents=True)
        made = searched(other)
        assert made.new_archive is not None
        made.new_archive.touch()
        made.keep()
        archive = searched(other).archive
        assert archive is not None
        # In the past, in their order.
        os.utime(archive, (number, number))
        # The first one is used again.
        assert searched(homes[0]).archive is not None
    found = [searched(other, new=False).archive is not None for other in homes]
    assert found == [True, False, *[True] * (class_archive.MAX_ARCHIVES - 1)]


def test_a_new_archive_of_an_installation_is_not_in_place_of_another_one(home: Path) -> None:
    other = home.with_name("other")
    (other / "jars").mkdir(parents=True)
    for own in (other, home, home):
        (own / "jars" / f"{len(list((own / 'jars').iterdir()))}.jar").touch()
        made = searched(own)
        assert made.new_archive is not None
        made.new_archive.touch()
        made.keep()
    assert [searched(own, new=False).archive is not None for own in (other, home)] == [True, True]


def test_what_failed_runs_left_is_removed(home: Path) -> None:
    left = home.parent / "cache" / "classes-0.jsa.1"
    left.parent.mkdir()
    left.touch()
    assert searched(home).new_archive is not None
    assert not left.exists()


def test_nothing_is_archived_where_the_cache_is_no_folder(home: Path) -> None:
    (home.parent / "cache").touch()
    assert searched(home) == ClassArchive()


def test_a_jvm_without_an_archive_leaves_none(home: Path) -> None:
    searched(home).keep()
    assert searched(home).archive is None


def test_no_classes_are_archived_by_a_java_without_an_archive_of_its_own(home: Path) -> None:
    base(home).unlink()
    assert searched(home) == ClassArchive()


def test_no_classes_are_archived_with_a_class_path_of_the_operator(home: Path) -> None:
    assert searched(home, HADOOP_CONF_DIR="/etc/hadoop") == ClassArchive()
    (home / "conf").mkdir()
    assert searched(home) == ClassArchive()
