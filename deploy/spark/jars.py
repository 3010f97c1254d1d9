"""The jars that PySpark lacks for Kafka, with their checksums in ``jars.lock``.

``python -m deploy.spark.jars`` rewrites ``jars.lock``, after a change of Spark's version.
"""

from pathlib import Path
from typing import Final

from deploy.jars import JarSet, write_lock

VERSION: Final = "4.0.0"
"""Version of Spark, as pinned by the extra ``spark``: the newest with a complete Kafka connector in the registry."""
JARS: Final = JarSet(
    f"spark-{VERSION}",
    Path(__file__).with_name("jars.lock"),
    "Spark's connector to Kafka",
    "`make spark` downloads them, and --source files does without them",
)


NEEDED: Final = (
    "org.apache.commons:commons-pool2:2.12.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{VERSION}",
)
"""The connector, and its dependencies that PySpark does not include."""
HEADER: Final = "Made by `python -m deploy.spark.jars`: what PySpark lacks for Kafka, with sha256."

if __name__ == "__main__":
    write_lock(JARS.lock, HEADER, NEEDED)
