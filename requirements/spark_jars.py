"""``python -m requirements.spark_jars``: write the lock file of ``learning.spark.jars``, of what PySpark lacks."""

from typing import Final

from learning.spark.jars import JARS, VERSION
from requirements.locks import write_lock

NEEDED: Final = (
    "org.apache.commons:commons-pool2:2.12.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{VERSION}",
)
"""The connector, and its dependencies that PySpark does not include; Kafka's clients are newer than those that it names
(3.9.0), for CVE-2026-35554."""
HEADER: Final = "Made by `python -m requirements.spark_jars`: what PySpark lacks for Kafka, with sha256."


if __name__ == "__main__":
    write_lock(JARS.lock, HEADER, NEEDED)
