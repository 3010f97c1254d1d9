"""The jars missing in PySpark for Kafka and S3, with their checksums in ``jars.lock`` and ``s3/jars.lock``.

``python -m requirements.spark_jars`` rewrites both, after a change of Spark's version.
"""

import os
from collections.abc import Mapping
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
S3_JARS: Final = JarSet(
    f"spark-{VERSION}-s3",
    Path(__file__).parent / "s3" / "jars.lock",
    "Spark's connector to S3",
    "or use a warehouse on disk",
)
"""Downloaded on first use of a warehouse in a bucket."""
_S3_CONNECTOR: Final = "hadoop-aws"


def has_s3a(settings: Mapping[str, str]) -> bool:
    """Return whether Spark has a connector to S3 already: among the jars of its settings, or of ``SPARK_HOME``."""
    named = (settings.get(name, "") for name in ("spark.jars", "spark.jars.packages"))
    home = os.environ.get("SPARK_HOME")
    return any(_S3_CONNECTOR in jars for jars in named) or (
        home is not None and any(Path(home, "jars").glob(f"{_S3_CONNECTOR}-*.jar"))
    )
