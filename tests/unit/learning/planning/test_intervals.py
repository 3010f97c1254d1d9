"""Other people's traffic becomes the statistics of its intervals; lines that cannot are counted by reason."""

from pathlib import Path

import pytest

from diem.errors import ConfigurationError
from learning.planning.intervals import COMBINED, Interval, read_intervals
from learning.statistics import reference

HELD_MS = 300_000
BEGIN = 1_767_225_600_000
CSV = """\
user,endpoint,start,to
u1,/a,2026-01-01T00:00:00Z,2026-01-01T00:10:00Z
u1,/b,1767225600,1767226200
u2,/a,1767225600000,
u2,/a,2026-01-01T01:00:00+01:00,1767225500
,/a,1,2
u3,,1,2
u3,/c,yesterday,
u3,/c,nan,
u3,/c,-5,
"""
LOG = """\
192.0.2.1 - - [01/Jan/2026:01:00:00 +0100] "GET /a?x=1 HTTP/1.1" 200 2326 "-" "Mozilla"
192.0.2.2 - bob [01/Jan/2026:00:00:01 +0000] "HEAD /b HTTP/2.0" 304 0
192.0.2.2 - - [01/Jan/2026:00:00:01 +0000] "POST /b HTTP/1.1" 200 0
192.0.2.2 - - [01/Jan/2026:00:00:01 +0000] "GET /b HTTP/1.1" 404 0
"""


def test_times_of_any_form_are_read_and_other_lines_are_counted(tmp_path: Path) -> None:
    (file := tmp_path / "use.csv").write_text(CSV)
    read = read_intervals(file, {"client": "user", "end": "to"}, None, HELD_MS)
    assert read.found == [
        Interval("u1", "/a", BEGIN, BEGIN + 600_000),
        Interval("u1", "/b", BEGIN, BEGIN + 600_000),
        Interval("u2", "/a", BEGIN, BEGIN + HELD_MS),
    ]
    assert read.skipped == {"it ends before it starts": 1, "no client or endpoint": 2, "no time": 3}
    found = reference.statistics(read.arrivals(), read.window)
    assert [(row.endpoints, row.weight, row.clients) for row in found.sets] == [((0,), 300, 1), ((0, 1), 600, 1)]
    assert (found.summary.sessions, found.summary.unended, found.summary.clients) == (3, 0, 2)


def test_an_access_log_has_reads_that_succeeded(tmp_path: Path) -> None:
    (file := tmp_path / "access.log").write_text(LOG)
    read = read_intervals(file, {}, COMBINED, HELD_MS)
    assert read.found == [
        Interval("192.0.2.1", "/a", BEGIN, BEGIN + HELD_MS),
        Interval("192.0.2.2", "/b", BEGIN + 1000, BEGIN + 1000 + HELD_MS),
    ]
    assert read.skipped == {"other form": 2}


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (None, "no column client (it has: user, endpoint, start, to): name it"),
        ("(", "no regular expression"),
        ("(?P<client>.)", "no group (?P<endpoint>"),
        (COMBINED, "no usable line: other form (10)"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, pattern: str | None, reason: str) -> None:
    (file := tmp_path / "use.csv").write_text(CSV)
    with pytest.raises(ConfigurationError) as raised:
        read_intervals(file, {}, pattern, HELD_MS)
    assert reason in str(raised.value)
