"""Rules of clients, passed and failed: our options, and access."""

from typing import Any

import pytest

from tests.unit.tools.check.healthy import facts, judgement, small
from tools.check.facts import Severity

FAULT, WARNING, OK = Severity.FAULT, Severity.WARNING, Severity.OK


@pytest.mark.parametrize(
    ("rule", "spoilt"),
    [
        ("acks", {"producer": {"acks": 1, "enable_idempotence": True}}),
        ("acks", {"producer": {}}),
        ("idempotence", {"producer": {"acks": "all"}}),
        ("commits", {"consumer": {"enable_auto_commit": True}}),
        ("commits", {"consumer": {}}),
        ("start", {"consumer": {"auto_offset_reset": "latest"}}),
    ],
)
def test_clients_that_lose_or_reorder_updates_are_faults(rule: str, spoilt: dict[str, Any]) -> None:
    assert judgement(rule, facts(**spoilt)).verdict is FAULT


def test_a_producer_timeout_shorter_than_an_election_is_a_warning() -> None:
    assert judgement("send timeout", facts(of_broker={"broker.session.timeout.ms": "30000"})).verdict is WARNING


@pytest.mark.parametrize(
    ("listeners", "protocols", "verdict"),
    [
        ("A://:9092", "A:SASL_SSL", OK),
        ("A://0.0.0.0:9092", "A:SSL", OK),
        ("A://0.0.0.0:9092", "A:PLAINTEXT", FAULT),
        ("PLAINTEXT://:9092", "", FAULT),
        ("A://[::1]:9092,B://127.0.0.1:1,C://localhost:2", "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT", OK),
        ("A://10.0.0.1:9092", "A:SASL_PLAINTEXT", WARNING),
        ("A://:9092,CONTROLLER://10.0.0.1:9093", "A:SSL,CONTROLLER:PLAINTEXT", FAULT),
    ],
)
def test_plaintext_listeners_outside_loopback_are_faults(listeners: str, protocols: str, verdict: Severity) -> None:
    given = facts(of_broker={"listeners": listeners, "listener.security.protocol.map": protocols})
    assert judgement("listeners", given).verdict is verdict


def test_an_unencrypted_connection_to_another_machine_is_a_fault() -> None:
    assert judgement("connection", facts(security_protocol="SASL_PLAINTEXT")).verdict is FAULT
    assert judgement("connection", small(bootstrap_servers="[::1]:9092,localhost:9093")).verdict is OK


def test_a_cluster_reachable_from_outside_needs_an_authorizer() -> None:
    assert judgement("authorizer", facts(of_broker={"authorizer.class.name": ""})).verdict is FAULT


@pytest.mark.parametrize(("value", "verdict"), [("absent", OK), ("false", OK), ("true", FAULT), (None, WARNING)])
def test_resources_without_an_acl_are_closed(value: str | None, verdict: Severity) -> None:
    given = facts(of_broker={"allow.everyone.if.no.acl.found": value})
    assert judgement("closed by default", given).verdict is verdict
