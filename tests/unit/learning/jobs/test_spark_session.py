"""Faults of a session, and its scratch folder, without a JVM."""

import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from learning.jobs import spark_session
from learning.jobs.spark_options import SparkOptions
from learning.jobs.spark_session import SparkFailed, open_spark, scratch_folder


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    context = SimpleNamespace(_accumulatorServer=SimpleNamespace())
    monkeypatch.setattr(spark_session, "spark_session", lambda *_: SimpleNamespace(sparkContext=context, stop=int))


def raised(error: Exception) -> Exception:
    try:
        with open_spark(SparkOptions(Path("/nowhere"))):
            raise error
    except Exception as converted:  # noqa: BLE001  # the test looks at all of them
        return converted


@pytest.mark.usefixtures("no_jvm")
def test_an_error_of_the_jvm_is_reported_in_one_line() -> None:
    from pyspark.errors import AnalysisException, IllegalArgumentException, PythonException  # noqa: PLC0415  # an extra

    error = raised(AnalysisException("[NO_PATH] it is gone.\nmore"))
    assert (type(error), str(error)) == (SparkFailed, "Spark failed: [NO_PATH] it is gone.")
    outer = AnalysisException("Error while instantiating 'Builder':")
    outer._cause = IllegalArgumentException("java.lang.IllegalArgumentException: 'x' is no number\nmore")  # type: ignore[attr-defined]
    assert str(raised(outer)) == "Spark failed: 'x' is no number"
    # An error of our own function in a task: its traceback is needed.
    assert isinstance(raised(PythonException("Traceback ...")), PythonException)


@pytest.mark.usefixtures("no_jvm")
@pytest.mark.parametrize("error", [ConnectionResetError(104, "reset"), OSError(9, "bad descriptor")])
def test_a_lost_connection_counts_as_the_death_of_the_jvm(error: OSError) -> None:
    assert "JVM died" in str(raised(error))


@pytest.mark.usefixtures("no_jvm")
@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied", "/w"), OSError(28, "No space left")])
def test_a_file_error_does_not_count_as_the_death_of_the_jvm(error: OSError) -> None:
    assert raised(error) is error


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_scratch_folder_is_removed_with_its_content(temporary: Path) -> None:
    with scratch_folder() as folder:
        (folder / "some").mkdir()
        assert folder.parent == temporary
    assert list(temporary.iterdir()) == []


def test_the_scratch_folder_of_a_killed_process_is_removed_by_the_next(temporary: Path) -> None:
    left = temporary / "diem-spark-left"
    (left / "blocks").mkdir(parents=True)
    (left / "lock").touch()
    with scratch_folder() as first, scratch_folder() as second:
        assert sorted(temporary.iterdir()) == sorted((first, second))


def test_folders_that_are_not_scratch_folders_are_left_alone(temporary: Path) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (temporary / "diem-spark-link").symlink_to(elsewhere)
    (temporary / "diem-spark-without").mkdir()
    with scratch_folder():
        pass
    assert sorted(path.name for path in temporary.iterdir()) == ["diem-spark-link", "diem-spark-without", "elsewhere"]
    assert (elsewhere / "lock").exists()
