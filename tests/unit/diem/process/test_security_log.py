"""Bounds of the lines, and what they contain; the metrics count everything."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from diem.process import metrics, security_log
from diem.process.security_log import MAX_CHARACTERS, MAX_SERIES, SUMMARY_EVERY_S, SecurityEvent, SecurityLog
from tests.support.security_events import recorded_events
from tests.support.virtual_time import VirtualLoop, run_virtual


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


def test_first_event_is_logged_at_once_and_later_ones_as_a_count(lines: list[Any]) -> None:
    log = SecurityLog()
    for number in range(1000):
        log.record(
            SecurityEvent.HANDSHAKE_REFUSED,
            address="192.0.2.1",
            origin=f"https://{number}.example",
            code=403,
            detail="no",
        )
    assert lines == [
        {
            "event": "handshake refused",
            "kind": "handshake_refused",
            "log_level": "info",
            "address": "192.0.2.1",
            "origin": "https://0.example",
            "code": 403,
            "detail": "no",
            "count": 1,
        }
    ]
    lines.clear()
    log.summarise()
    assert [(line["count"], line["origin"]) for line in lines] == [(999, "https://999.example")]


def test_quiet_series_is_forgotten_and_its_next_event_is_logged_at_once(lines: list[Any]) -> None:
    log = SecurityLog()
    log.record(SecurityEvent.WRONG_API_KEY, address="192.0.2.1")
    log.summarise()
    assert len(lines) == 1, "nothing happened since the line"
    log.record(SecurityEvent.WRONG_API_KEY, address="192.0.2.1")
    assert len(lines) == 2


def test_addresses_codes_and_keys_are_told_apart_but_not_within_a_64(lines: list[Any]) -> None:
    log = SecurityLog()
    for address in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "192.0.2.1"):
        log.record(SecurityEvent.RATE_EXCEEDED, address=address, code=429)
    log.record(SecurityEvent.RATE_EXCEEDED, address="192.0.2.1", code=4003)
    log.record(SecurityEvent.RATE_EXCEEDED, address="192.0.2.1", code=429, key_name="page")
    assert [line["address"] for line in lines] == [
        "2001:db8::1", "2001:db8:0:1::1", "192.0.2.1", "192.0.2.1", "192.0.2.1"
    ]  # fmt: skip


def test_table_is_bounded_and_the_overflow_is_counted_by_kind(lines: list[Any]) -> None:
    log = SecurityLog()
    for number in range(MAX_SERIES + 500):
        log.record(SecurityEvent.WRONG_WRITE_KEY, address=f"10.0.{number >> 8}.{number & 255}")
    assert len(lines) == MAX_SERIES
    assert log.unattributed == 500
    assert log.counts[SecurityEvent.WRONG_WRITE_KEY] == MAX_SERIES + 500
    lines.clear()
    log.summarise()
    assert [(line["kind"], line["count"]) for line in lines] == [("wrong_write_key", 500)]
    log.summarise()
    assert len(lines) == 1, "both are empty again"


def test_writes_are_one_series_for_a_key_with_the_sum_of_their_changes(lines: list[Any]) -> None:
    log = SecurityLog()
    for number in range(10):
        log.record(SecurityEvent.WRITES, address=f"192.0.2.{number}", key_name="importer", changes=5)
    log.record(SecurityEvent.WRITES, address="192.0.2.1", key_name="other", changes=1)
    log.summarise()
    assert [(line["key_name"], line["count"], line["changes"]) for line in lines] == [
        ("importer", 1, 5), ("other", 1, 1), ("importer", 9, 45)
    ]  # fmt: skip


def refuse(log: SecurityLog, cause: str, number: int = 0) -> None:
    address = f"192.0.2.{number % 250}"
    log.refuse(SecurityEvent.HANDSHAKE_REFUSED, cause, address=address, code=403, detail=f"{cause} {number}")


def test_refused_clients_are_one_warning_a_minute_and_cause(lines: list[Any]) -> None:
    log = SecurityLog()
    for number in range(500):
        refuse(log, "origin", number)
    refuse(log, "limit")
    warnings = [(line["event"], line.get("count")) for line in lines if line["log_level"] == "warning"]
    assert warnings == [("refused 192.0.2.0: origin 0", None), ("refused 192.0.2.0: limit 0", None)]
    lines.clear()
    log.summarise()
    warnings = [(line["event"], line.get("count")) for line in lines if line["log_level"] == "warning"]
    assert warnings == [("refused 192.0.2.0: origin 0", 499)], "later ones do not replace the first"
    lines.clear()
    for number in (7, 8):
        refuse(log, "origin", number)
    log.summarise()
    warnings = [(line["event"], line.get("count")) for line in lines if line["log_level"] == "warning"]
    assert warnings == [("refused 192.0.2.7: origin 7", 2)]
    log.summarise()
    lines.clear()
    refuse(log, "origin")
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["refused 192.0.2.0: origin 0"]
    assert log.refusals == {"origin": 503, "limit": 1}


def test_every_administrative_change_has_a_line(lines: list[Any]) -> None:
    log = SecurityLog()
    for pairs in range(2, 5):
        log.audit(SecurityEvent.SCALED, address="unix", before=pairs - 1, pairs=pairs)
    assert [line["pairs"] for line in lines] == [2, 3, 4]
    assert {line["log_level"] for line in lines} == {"warning"}


def test_text_of_a_client_is_cut(lines: list[Any]) -> None:
    SecurityLog().record(SecurityEvent.HANDSHAKE_REFUSED, address="192.0.2.1", origin="x" * 8000)
    assert len(lines[0]["origin"]) == MAX_CHARACTERS + 3


def test_every_kind_is_sampled_from_the_beginning() -> None:
    log = SecurityLog()
    log.record(SecurityEvent.WRITES, key_name="importer")
    found = {sample.labels[0]: sample.value for sample in log.samples() if sample.metric is metrics.SECURITY_EVENTS}
    assert found == {str(kind): float(kind is SecurityEvent.WRITES) for kind in SecurityEvent}


def test_summary_follows_each_minute_and_at_the_end() -> None:
    async def scenario(_loop: VirtualLoop) -> None:
        async with security_log.summaries():
            for _ in range(3):
                security_log.record(SecurityEvent.WRONG_INTERNAL_KEY, address="192.0.2.77", code=401)
            await asyncio.sleep(SUMMARY_EVERY_S + 1)
            assert [line["count"] for line in events.all()] == [1, 2]
            security_log.record(SecurityEvent.WRONG_INTERNAL_KEY, address="192.0.2.77", code=401)
        assert [line["count"] for line in events.all()] == [1, 2, 1]

    with recorded_events() as events:
        run_virtual(scenario)
