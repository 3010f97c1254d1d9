"""The settings of a session: whose win, and what a cluster needs."""

import re
from pathlib import Path

import pytest

from diem.errors import ConfigurationError
from learning.jobs.spark_options import (
    PARTITION_BYTES,
    QUICK_EVENTS,
    SparkOptions,
    SparkSettings,
    configuration,
    default_memory,
    is_local,
    read_defaults,
    settings_for_size,
)

CLUSTER = "spark://one:7077"


def made(settings: SparkSettings, **given: str) -> dict[str, str]:
    named = {f"spark.{name.replace('_', '.')}": value for name, value in given.items()}
    return configuration(SparkOptions(Path("/scratch"), settings, jars=(Path("/ours.jar"),)), named)


def test_without_a_master_spark_runs_here_on_loopback_only() -> None:
    found = made(SparkSettings("local[3]", (("spark.driver.memory", "2g"),)))
    assert (found["spark.master"], found["spark.driver.memory"]) == ("local[3]", "2g")
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"
    assert (found["spark.local.dir"], found["spark.ui.enabled"]) == ("/scratch", "false")
    assert "spark.executor.memory" not in found


def test_options_win_over_the_settings_of_spark_submit_and_these_over_ours() -> None:
    settings = SparkSettings(conf=(("spark.driver.memory", "3g"), ("spark.sql.session.timeZone", "CET")))
    found = made(settings, master=CLUSTER, driver_memory="5g", ui_enabled="true", driver_host="me", app_name="mine")
    assert (found["spark.master"], found["spark.app.name"]) == (CLUSTER, "mine")
    assert (found["spark.driver.memory"], found["spark.ui.enabled"], found["spark.driver.host"]) == ("3g", "true", "me")
    assert found["spark.sql.session.timeZone"] == "UTC", "days of the tables depend on it"
    assert made(SparkSettings(master="local[1]"), master=CLUSTER)["spark.master"] == "local[1]"
    assert made(SparkSettings(conf=(("spark.master", "yarn"),)), master=CLUSTER)["spark.master"] == "yarn"


def test_jars_and_options_of_the_jvm_are_added_to_those_given() -> None:
    found = made(SparkSettings(), jars="/theirs.jar", driver_extraJavaOptions="-Dx=1")
    assert found["spark.jars"] == "/ours.jar,/theirs.jar"
    assert found["spark.driver.extraJavaOptions"].endswith(" -Dx=1")
    assert "log4j2" in found["spark.driver.extraJavaOptions"]


def test_a_collector_of_the_operator_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def collectors(master: str, **given: str) -> list[str]:
        options = made(SparkSettings(master), **given)["spark.driver.extraJavaOptions"]
        return [option for option in options.split() if re.fullmatch(r"-XX:\+Use\w+GC", option)]

    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    assert collectors("local[2]") == ["-XX:+UseSerialGC"]
    assert collectors("local[3]") == ["-XX:+UseParallelGC"]
    assert collectors("local[2]", driver_extraJavaOptions="-Da=1 -XX:+UseZGC") == ["-XX:+UseZGC"]
    assert collectors("local[2]", driver_defaultJavaOptions="-XX:+UseZGC") == []
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xmn1m -XX:+UseG1GC")
    assert collectors("local[2]") == []


def test_only_runs_for_many_events_have_the_optimising_compiler() -> None:
    def options(events: float) -> str:
        few = SparkOptions(Path("/scratch"), SparkSettings(), events=events)
        return configuration(few, {})["spark.driver.extraJavaOptions"]

    assert ["TieredStopAtLevel" in options(events) for events in (0, QUICK_EVENTS, QUICK_EVENTS + 1)] == [
        True,
        True,
        False,
    ]
    assert "TieredStopAtLevel" not in made(SparkSettings())["spark.driver.extraJavaOptions"]


def test_partitions_of_shuffles_follow_their_input() -> None:
    def partitions(size: int) -> int:
        return int(settings_for_size(size, cores=4)["spark.sql.shuffle.partitions"])

    assert [partitions(size) for size in (0, 1, PARTITION_BYTES)] == [1, 1, 1]
    assert (partitions(PARTITION_BYTES + 1), partitions(17 * PARTITION_BYTES)) == (4, 20)
    assert partitions(1 << 50) == 10_000


def test_a_cluster_has_no_settings_of_this_machine() -> None:
    found = made(SparkSettings(CLUSTER))
    assert not {"spark.driver.host", "spark.driver.bindAddress", "spark.local.dir"} & found.keys()


def test_spark_connect_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Spark Connect"):
        made(SparkSettings("sc://one:15002"))


@pytest.mark.parametrize(
    ("master", "local"), [("local", True), ("local[*]", True), ("local-cluster[1,1,512]", False), ("yarn", False)]
)
def test_only_threads_of_the_driver_are_local(master: str, *, local: bool) -> None:
    assert is_local(master) is local


def test_memory_follows_the_cores_within_bounds() -> None:
    assert default_memory("local[1]") == "1024m"
    assert 1024 <= int(default_memory("local[64]").removesuffix("m")) <= 4096


def test_settings_of_spark_defaults_are_read(tmp_path: Path) -> None:
    assert read_defaults(tmp_path) == {}
    text = "# spark.no 1\n\nspark.master   spark://one:7077\nspark.a=b=c\n spark.flags  -Da=1 -Db=2 \nspark.port: 7\n"
    (tmp_path / "spark-defaults.conf").write_text(text)
    expected = {"spark.master": CLUSTER, "spark.a": "b=c", "spark.flags": "-Da=1 -Db=2", "spark.port": "7"}
    assert read_defaults(tmp_path) == expected
