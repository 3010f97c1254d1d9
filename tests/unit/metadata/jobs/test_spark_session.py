"""What of a session's faults is said to a person; without a JVM."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from metadata.jobs import spark_session
from metadata.jobs.spark_session import SparkFailed, SparkOptions, open_spark


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    context = SimpleNamespace(_accumulatorServer=SimpleNamespace())
    monkeypatch.setattr(
        spark_session, "spark_session", lambda _options: SimpleNamespace(sparkContext=context, stop=int)
    )


def raised(error: Exception) -> Exception:
    try:
        with open_spark(SparkOptions(Path("/nowhere"))):
            raise error
    except Exception as became:  # noqa: BLE001  # whatever it is
        return became


def test_what_the_jvm_could_not_do_is_one_line() -> None:
    from pyspark.errors import AnalysisException, PythonException  # noqa: PLC0415  # an extra

    said = raised(AnalysisException("[NO_PATH] it is gone.\nmore"))
    assert (type(said), str(said)) == (SparkFailed, "Spark cannot do it: [NO_PATH] it is gone.")
    # That is our own function, in a task: whoever mends it needs its traceback.
    assert isinstance(raised(PythonException("Traceback ...")), PythonException)


@pytest.mark.parametrize("error", [ConnectionResetError(104, "reset"), OSError(9, "bad descriptor")])
def test_lost_connection_to_the_jvm_is_its_death(error: OSError) -> None:
    assert "JVM died" in str(raised(error))


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied", "/w"), OSError(28, "No space left")])
def test_file_that_cannot_be_written_is_not_the_death_of_the_jvm(error: OSError) -> None:
    assert raised(error) is error
