"""Which connectors are added to Spark's own jars."""

from deploy.jars import locked
from learning.spark.jars import JARS
from requirements.spark_jars import NEEDED


def test_lock_file_has_what_the_connector_needs() -> None:
    assert [jar.coordinate for jar in locked(JARS.lock.read_text())] == [*NEEDED]
