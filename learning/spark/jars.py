"""The jars missing in PySpark for Kafka, with their checksums in ``jars.lock``.

``python -m requirements.spark_jars`` rewrites it, after a change of Spark's version.
"""

from pathlib import Path
from typing import Final

from deploy.jars import JarSet

VERSION: Final = "4.0.0"
"""Version of Spark, as pinned by the extra ``spark``: the newest with a complete Kafka connector in the registry."""
JARS: Final = JarSet(
    f"spark-{VERSION}",
    Path(__file__).with_name("jars.lock"),
    "Spark's connector to Kafka",
    "download them with `make spark`, or read files with --source files",
)
