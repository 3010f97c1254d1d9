"""Fixtures that any test may take, and what holds for all."""

import hypothesis

from tests.support.databases import databases
from tests.support.kafka import kafka, kafka_options, kafka_program
from tests.support.postgres import postgres

__all__ = ["databases", "kafka", "kafka_options", "kafka_program", "postgres"]

# How long an example takes is a matter of the machine, and of what else it does.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")
