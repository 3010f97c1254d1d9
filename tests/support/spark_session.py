"""Options of Spark in tests, whose few rows and short lives make the best plans and compilers a waste of CPU time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JVM_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""For JVMs that end before an optimising compiler would pay. To verify the classes of Spark takes 4 s of CPU time."""
OPTIONS: Final = f"{JVM_OPTIONS} -XX:ReservedCodeCacheSize=240m"
"""For ``SPARK_SUBMIT_OPTS``: the room for code of this compiler would be 48 MiB, too few for Spark."""
INTERPRETED: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
"""Settings with which queries of few rows take half the CPU time: neither compiled, nor planned again by each stage."""


@contextmanager
def as_users_run(spark: "SparkSession") -> "Iterator[None]":
    """Let a session compile and plan queries as it does by default, with two partitions of each shuffle."""
    before = {name: spark.conf.get(name) for name in (*INTERPRETED, "spark.sql.shuffle.partitions")}
    for name in INTERPRETED:
        spark.conf.unset(name)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))
