"""Scrape targets of every kind of process, and the file that follows them."""

import json
from pathlib import Path

import pytest

from deploy.system.scrape_targets import Target, TargetsFile, file_sd, scrape_targets
from deploy.topology import Mode
from tests.unit.tools.prometheus.described import described, with_pairs


def test_every_process_with_an_internal_listener_is_a_target() -> None:
    assert scrape_targets(described(Mode.X, 2)) == [
        Target("127.0.0.1:9080", {"process": "data", "mode": "x"}),
        Target("127.0.0.1:9201", {"process": "bridge", "number": "1", "mode": "x"}),
        Target("127.0.0.1:9202", {"process": "bridge", "number": "2", "mode": "x"}),
        Target("127.0.0.1:9101", {"process": "websocket", "number": "1", "mode": "x"}),
        Target("127.0.0.1:9102", {"process": "websocket", "number": "2", "mode": "x"}),
    ]


def test_targets_of_clones_have_their_number() -> None:
    labels = [target.labels for target in scrape_targets(described(Mode.Z_CLIENT, 1, clones=2))]
    assert labels == [
        {"process": "data", "mode": "z-client"},
        {"process": "metadata", "mode": "z-client"},
        {"process": "bridge", "number": "1", "clone": "1", "mode": "z-client"},
        {"process": "bridge", "number": "9", "clone": "2", "mode": "z-client"},
        {"process": "websocket", "number": "1", "clone": "1", "mode": "z-client"},
        {"process": "websocket", "number": "9", "clone": "2", "mode": "z-client"},
    ]


def test_children_of_composites_are_targets_with_the_clone_of_their_composite() -> None:
    found = scrape_targets(with_pairs(described(Mode.XZ, 1, clones=2), 1))
    assert [target.labels for target in found[4:]][-3:] == [
        {"process": "bridge", "number": "1", "clone": "2", "mode": "xz"},
        {"process": "websocket", "number": "1", "clone": "2", "mode": "xz"},
        {"process": "proxy", "clone": "2", "mode": "xz"},
    ]
    composite = scrape_targets(with_pairs(described(Mode.Z_COMPOSITE, 1), 1))
    assert [target.labels.get("clone") for target in composite] == [None] * 6


@pytest.mark.parametrize("mode", Mode)
def test_labels_tell_all_targets_of_a_mode_apart(mode: Mode) -> None:
    found = scrape_targets(with_pairs(described(mode), 2))
    assert len({tuple(target.labels.items()) for target in found}) == len(found) >= 2


def test_file_is_written_when_targets_change_alone(tmp_path: Path) -> None:
    path = tmp_path / "targets.json"
    targets = TargetsFile(path)
    targets.update(described(Mode.X_BROADCAST, 1))
    first = path.stat().st_ino
    assert path.stat().st_mode & 0o777 == 0o600
    targets.update(described(Mode.X_BROADCAST, 1) | {"uptime_seconds": 9})
    assert path.stat().st_ino == first
    targets.update(described(Mode.X_BROADCAST, 2))
    assert path.read_bytes() == file_sd(scrape_targets(described(Mode.X_BROADCAST, 2)))
    assert {
        "targets": ["127.0.0.1:9102"],
        "labels": {"process": "websocket", "number": "2", "mode": "x-broadcast"},
    } in (json.loads(path.read_text()))


def test_children_of_a_composite_that_does_not_answer_stay(tmp_path: Path) -> None:
    path = tmp_path / "targets.json"
    targets = TargetsFile(path)
    targets.update(with_pairs(described(Mode.Z_COMPOSITE), 1))
    before = path.read_bytes()
    assert before.count(b'"process"') == 6
    targets.update(described(Mode.Z_COMPOSITE))
    assert path.read_bytes() == before
    targets.update(with_pairs(described(Mode.Z_COMPOSITE), 2))
    assert path.read_bytes().count(b'"process"') == 8
