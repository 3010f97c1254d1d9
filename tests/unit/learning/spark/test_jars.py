"""Which connectors are added to Spark's own jars."""

from pathlib import Path

import pytest

from deploy.jars import locked
from learning.spark.jars import JARS, S3_JARS, has_s3a
from requirements.spark_jars import NEEDED, S3_NEEDED


def test_lock_files_have_what_the_connectors_need() -> None:
    for jars, needed in ((JARS, NEEDED), (S3_JARS, S3_NEEDED)):
        assert [jar.coordinate for jar in locked(jars.lock.read_text())] == [*needed]


def test_an_operators_connector_to_s3_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert not has_s3a({"spark.jars": "/theirs.jar", "spark.master": "yarn"})
    assert has_s3a({"spark.jars": "/theirs.jar,/jars/hadoop-aws-3.4.1.jar"})
    assert has_s3a({"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.4.1"})
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert not has_s3a({})
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "hadoop-aws-3.4.1.jar").touch()
    assert has_s3a({})
