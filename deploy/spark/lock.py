"""`python -m deploy.spark.lock` makes `jars.lock` anew, after a change of Spark's version."""

from typing import Final

from deploy.jars import write_lock
from deploy.spark.jars import JARS, VERSION

NEEDED: Final = (
    "org.apache.commons:commons-pool2:2.12.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{VERSION}",
)
"""The connector, and what it needs of what PySpark does not bring along."""
HEADER: Final = "Made by `python -m deploy.spark.lock`: what PySpark lacks for Kafka, with sha256."

if __name__ == "__main__":
    write_lock(JARS.lock, HEADER, NEEDED)
