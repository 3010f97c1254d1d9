from structlog.testing import capture_logs

from bridge.records import BURST, EVERY, BadLog, BadRecord
from diem.process.clock import ManualClock


def test_a_bad_record_is_named_with_the_beginning_of_its_bytes() -> None:
    with capture_logs() as lines:
        BadLog(ManualClock().monotonic)(BadRecord("a/b.updates/7", 42, b"\x00" * 5000, b"\xff" * 5000))
    (line,) = lines
    assert (line["topic"], line["partition"], line["offset"]) == ("a/b.updates", 7, 42)
    assert (line["record_key_hex"], line["record_value_hex"]) == ("00" * 1024, "ff" * 1024)


def test_a_record_without_a_key_is_named_too() -> None:
    with capture_logs() as lines:
        BadLog(ManualClock().monotonic)(BadRecord("t/0", 1, None, b""))
    assert (lines[0]["record_key_hex"], lines[0]["record_value_hex"]) == (None, "")


def test_a_million_bad_records_are_a_few_lines_that_say_how_many_were_left_out() -> None:
    clock = ManualClock()
    log = BadLog(clock.monotonic)
    with capture_logs() as lines:
        for offset in range(1_000_000 // 100):
            log(BadRecord("t/0", offset, b"/a", b"x"))
        assert len(lines) == BURST
        clock.advance(EVERY)
        log(BadRecord("t/0", 1, b"/a", b"x"))
        log(BadRecord("t/0", 2, b"/a", b"x"))
    assert len(lines) == BURST + 1
    assert lines[-1]["not_logged_before"] == 10_000 - BURST
