"""Rendering of findings: readable at 80 columns, commands that can be copied, everything in JSON."""

import io
import json
import shlex
from dataclasses import replace

from rich.console import Console

from tests.unit.tools.check.healthy import UPDATES, cluster, facts, judgement, small, topic
from tools.check.facts import Facts, Severity
from tools.check.report import TABLE, as_json, audit, render, worst
from tools.check.tools import wrap_command

FAULT, WARNING, OK = Severity.FAULT, Severity.WARNING, Severity.OK


def spoilt() -> Facts:
    bad = facts(of_topic={"cleanup.policy": "compact,delete", "segment.ms": "99999999"}, planned=(1, 5))
    return replace(bad, cluster=cluster(topic(UPDATES, 12, 1)))


def shown(given: Facts, width: int) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, markup=False, emoji=False)
    for part in render(given, audit(given), width):
        console.print(part)
    return out.getvalue().splitlines()


def test_no_line_is_wider_than_the_terminal() -> None:
    lines = shown(spoilt(), 80)
    assert max(map(len, lines)) <= 80
    assert "  cleanup policy" in "\n".join(lines)


def test_no_text_is_cut_on_a_narrow_terminal() -> None:
    words = [word for line in shown(spoilt(), 240) for word in line.split()]
    assert set(words) <= {word for line in shown(spoilt(), 80) for word in line.split()}


def test_findings_are_ordered_by_severity() -> None:
    text = "\n".join(shown(spoilt(), 80))
    places = [text.index(part) for part in ("faults\n", "warnings\n", " OK\n")]
    assert places == sorted(places)
    assert text.index("cleanup policy") < text.index("compaction pace") < text.index("auto creation")


def test_a_wrapped_command_is_equivalent_for_a_shell() -> None:
    for each in audit(spoilt()):
        for command in each.judgement.commands:
            for width in (40, 72, 200):
                broken = wrap_command(command, width)
                assert shlex.split(broken.replace("\\\n", "")) == shlex.split(command)
                longest = max(map(len, shlex.split(command)))
                assert all(len(line) <= max(width, longest + 4) for line in broken.splitlines())


def test_a_command_can_be_copied_from_the_terminal() -> None:
    lines = shown(spoilt(), 80)
    begins = [number for number, line in enumerate(lines) if line.strip().startswith("kafka-")]
    copied = []
    for begin in begins:
        end = next(number for number in range(begin, len(lines)) if not lines[number].endswith("\\"))
        copied.append(shlex.split("\n".join(lines[begin : end + 1]).replace("\\\n", "")))
    commands = [c for each in audit(spoilt()) for c in each.judgement.commands if c.startswith("kafka-")]
    assert sorted(copied) == sorted(map(shlex.split, commands))
    assert any(line.endswith("\\") for line in lines)


def test_json_has_every_finding_with_its_reason_and_its_change() -> None:
    given = spoilt()
    findings = audit(given)
    read = json.loads(json.dumps(as_json(given, findings)))
    assert read["verdict"] == "fault"
    assert read["tolerate"] == 1
    by_rule = {each["rule"]: each for each in read["findings"]}
    assert len(by_rule) == len(findings)
    policy = by_rule["cleanup policy"]
    assert (policy["verdict"], policy["group"]) == ("fault", "Log")
    assert policy["protects"]
    assert policy["commands"]


def test_the_verdict_is_the_worst_severity() -> None:
    assert worst(audit(spoilt())) is Severity.FAULT
    assert worst(audit(facts(planned=(1, 5)))) is Severity.WARNING
    assert worst(audit(facts())) is Severity.OK


def test_a_healthy_cluster_is_in_order_by_every_rule() -> None:
    findings = audit(facts())
    assert {each.rule.name for each in findings} == {rule.name for _, rules in TABLE for rule in rules}
    assert [each for each in findings if each.judgement.verdict is not OK] == []


def test_one_local_broker_is_in_order_only_if_no_loss_is_tolerated() -> None:
    assert {each.judgement.verdict for each in audit(small(tolerate=0))} == {OK}
    faults = {each.rule.name for each in audit(small()) if each.judgement.verdict is FAULT}
    assert faults == {"replication", "min in sync", "internal replication", "internal min in sync", "controllers"}


def test_every_fault_and_warning_has_a_change() -> None:
    for given in (small(), facts(brokers={}), facts(cluster=cluster())):
        for each in audit(given):
            if each.judgement.verdict is not OK:
                assert each.judgement.change or each.judgement.commands, each


def test_hidden_settings_are_a_warning() -> None:
    hidden = facts(brokers={}, topics={})
    for rule in ("auto creation", "listeners", "authorizer", "cleanup policy", "min in sync", "controllers"):
        found = judgement(rule, hidden)
        assert (found.verdict, "does not show" in found.found) == (WARNING, True), rule
