"""The jars of the local Kafka, with their checksums in ``jars.lock``.

``python -m requirements.kafka_jars`` rewrites it and ``features.checkpoint``, after a change of Kafka's version.
"""

from pathlib import Path
from typing import Final

from deploy.jars import JarSet

VERSION: Final = "4.4.0"
"""Version of Kafka."""
JARS: Final = JarSet(
    f"kafka-{VERSION}",
    Path(__file__).with_name("jars.lock"),
    "the local Kafka",
    "or use a cluster with --bootstrap-servers",
)
