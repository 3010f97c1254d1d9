"""The jars that PySpark lacks for Kafka: named and checksummed in `jars.lock`."""

from pathlib import Path
from typing import Final

from deploy.jars import JarSet

VERSION: Final = "4.0.0"
"""Of Spark: what the extra `spark` pins. The newest whose connector to Kafka the registry has with all of its parts."""
JARS: Final = JarSet(
    f"spark-{VERSION}",
    Path(__file__).with_name("jars.lock"),
    "Spark's connector to Kafka",
    "`make spark` downloads them, and --source files does without them",
)
