"""``python -m requirements.spark_jars``: write the lock files of ``learning.spark.jars``, of what PySpark lacks."""

from typing import Final

from learning.spark.jars import JARS, S3_JARS, VERSION
from requirements.locks import write_lock

NEEDED: Final = (
    "org.apache.commons:commons-pool2:2.12.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{VERSION}",
)
"""The connector, and its dependencies that PySpark does not include; Kafka's clients are newer than those that it names
(3.9.0), for CVE-2026-35554."""
_SDK: Final = "2.25.53"
"""Of those that have all modules in the registry, one close to that which the connector was built with (2.24.6)."""
_SDK_MODULES: Final = (
    *("annotations", "apache-client", "arns", "auth", "aws-core", "aws-query-protocol", "aws-xml-protocol"),
    *("checksums", "checksums-spi", "crt-core", "endpoints-spi", "http-auth", "http-auth-aws"),
    *("http-auth-aws-eventstream", "http-auth-spi", "http-client-spi", "identity-spi", "json-utils", "metrics-spi"),
    *("netty-nio-client", "profiles", "protocol-core", "regions", "s3", "s3-transfer-manager", "sdk-core", "sts"),
    *("third-party-jackson-core", "utils"),
)
S3_NEEDED: Final = (
    "org.apache.hadoop:hadoop-aws:3.4.1",
    "org.reactivestreams:reactive-streams:1.0.4",
    *(f"software.amazon.awssdk:{module}:{_SDK}" for module in _SDK_MODULES),
    "software.amazon.eventstream:eventstream:1.0.1",
)
"""The connector of PySpark's version of Hadoop, and the modules of the SDK that it uses: of 560 MB that all take, 9."""
HEADER: Final = "Made by `python -m requirements.spark_jars`: what PySpark lacks for {}, with sha256."


if __name__ == "__main__":
    write_lock(JARS.lock, HEADER.format("Kafka"), NEEDED)
    write_lock(S3_JARS.lock, HEADER.format("S3"), S3_NEEDED)
