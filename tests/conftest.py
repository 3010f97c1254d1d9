"""Fixtures that any test may take."""

from tests.support.databases import databases
from tests.support.kafka import kafka, kafka_options, kafka_program
from tests.support.postgres import postgres

__all__ = ["databases", "kafka", "kafka_options", "kafka_program", "postgres"]
