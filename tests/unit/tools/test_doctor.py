"""Each check of `diem doctor`: what is well, what is wrong, and that there is a remedy for it."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deploy.system.state_dir import StateDir
from diem import __version__
from diem.process.listeners import OTHER_FILES
from diem.process.tls import certificate_expiry_s
from services.data.store import alembic_runs
from services.data.store.tables import REVISION
from tests.support.certificates import Authority
from tests.unit.deploy.admin.statuses import change, data, dead, replace, server, situation, status
from tools.check.facts import Judgement, Rule, RuleResult, Severity
from tools.check.report import TABLE
from tools.diagnosis import Diagnosis, State
from tools.doctor import (
    CLIENTS,
    NOW,
    of_certificate,
    of_clock,
    of_kafka,
    of_open_files,
    of_ports,
    of_processes,
    of_state_dir,
    of_store,
)

SYSTEM = status("single", data(), server("websocket-1", 3))


def states(found: Iterable[Diagnosis]) -> list[tuple[str, str]]:
    found = list(found)
    assert all(each.remedy for each in found if each.state in {State.NOTE, State.FAULT}), found
    return [(each.name, each.state) for each in found]


def store_of(file: Path, revision: str) -> Path:
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE alembic_version (version_num TEXT)")
        database.execute("INSERT INTO alembic_version VALUES (?)", (revision,))
    return file


def test_missing_state_directory_is_well_and_a_broken_key_is_not(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "state")
    assert states(of_state_dir(state)) == [("state directory", "ok")]
    state.create_keys()
    assert states(of_state_dir(state))[0] == ("state directory", "ok")
    state.write_key_file.write_text("short")
    (found,) = of_state_dir(state)
    assert (found.state, str(state.write_key_file) in found.text) == (State.FAULT, True)


@pytest.mark.parametrize(
    ("revision", "state"),
    [
        (REVISION, "ok"),
        (min(alembic_runs.revisions() - {REVISION}), "note"),
        ("of-next-year", "fault"),
    ],
)
def test_store_of_another_release_is_named(tmp_path: Path, revision: str, state: str) -> None:
    assert states(of_store(store_of(tmp_path / "data.db", revision))) == [("store", state)]


def test_file_that_is_no_store_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "data.db").write_bytes(b"no database" * 100)
    assert states(of_store(tmp_path / "data.db")) == [("store", "fault")]
    assert not states(of_store(tmp_path / "none.db"))


def test_ports_in_use_are_named_unless_they_are_ours() -> None:
    (found,) = of_ports(lambda port: port != 8101, running=False)
    assert (found.state, found.text) == (State.NOTE, "8101 in use by another program")
    assert states(of_ports(lambda _port: True, running=False)) == [("ports", "ok")]
    assert not states(of_ports(lambda _port: False, running=True))


def test_limit_of_open_files_bounds_the_clients() -> None:
    assert of_open_files((1024, CLIENTS + OTHER_FILES)).state is State.OK
    found = of_open_files((1024, OTHER_FILES + 768))
    assert (found.state, found.text.endswith("at most 768 clients at a server")) == (State.NOTE, True)


@pytest.mark.parametrize(
    ("synchronised", "difference", "wanted"),
    [
        (True, 0.2, ["ok"]),
        (None, 0.2, ["ok"]),
        (False, 0.2, ["note"]),
        (True, -3.0, ["fault"]),
    ],
)
def test_clocks_that_differ_are_a_fault(synchronised: bool | None, difference: float, wanted: list[str]) -> None:
    found = of_clock(synchronised, {"data": {"clock_difference": difference}, "websocket-1": {}})
    assert [state for _, state in states(found)] == wanted


def test_certificate_is_named_before_it_expires(tmp_path: Path) -> None:
    made = Authority(tmp_path).issue().certificate
    expires_s = certificate_expiry_s(made)
    for days, wanted in ((30, "ok"), (5, "note"), (-1, "fault")):
        assert states(of_certificate(made, expires_s - days * 86_400)) == [("certificate", wanted)]
    assert states(of_certificate(tmp_path / "none.pem", expires_s)) == [("certificate", "fault")]
    assert not states(of_certificate(None, expires_s))


@pytest.mark.parametrize(
    ("of", "wanted"),
    [
        (SYSTEM, [("processes", "ok")]),
        (replace(SYSTEM, dead("websocket-1")), [("websocket-1", "fault")]),
        (change(SYSTEM, "data", report={"version": f"{__version__}.9"}), [("release", "note"), ("processes", "ok")]),
        (change(SYSTEM, "websocket-1", report={"capacity": 3}), [("websocket-1", "note"), ("processes", "ok")]),
    ],
)
def test_running_processes_are_those_of_the_operator_page_with_releases_and_capacity(
    of: dict[str, Any], wanted: list[tuple[str, str]]
) -> None:
    assert states(of_processes(situation(of))) == wanted


def test_faults_of_the_cluster_now_are_named_and_others_counted() -> None:
    rule = Rule("brokers", "everything", "thesis 7.2", lambda _facts: None)
    found = {
        (group, verdict): RuleResult(group, rule, Judgement(verdict, "one missing", "start it"))
        for group, _ in TABLE
        for verdict in Severity
    }
    assert TABLE[0][0] == NOW
    assert states(of_kafka(found.values(), "broker:9092")) == [("kafka", "fault"), ("kafka", "note")]
    assert states(of_kafka([found["Security", Severity.FAULT]], "broker:9092")) == [("kafka", "note")]
    assert states(of_kafka([found["Security", Severity.OK]], "broker:9092")) == [("kafka", "ok")]
