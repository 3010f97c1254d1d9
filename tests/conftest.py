"""Fixtures that any test may take."""

from tests.support.kafka import kafka, kafka_options, kafka_program

__all__ = ["kafka", "kafka_options", "kafka_program"]
