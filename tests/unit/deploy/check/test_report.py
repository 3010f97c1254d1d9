"""How findings are shown: readable at 80 columns, commands that can be copied, everything in JSON."""

import io
import json
import shlex
from dataclasses import replace

from rich.console import Console

from deploy.check.facts import Facts
from deploy.check.report import as_json, rendered, verdict, wrapped
from deploy.check.rule import Severity, audit
from deploy.check.rules import TABLE
from tests.unit.deploy.check.healthy import UPDATES, cluster, facts, topic


def spoilt() -> Facts:
    bad = facts(of_topic={"cleanup.policy": "compact,delete", "segment.ms": "99999999"}, planned=(1, 5))
    return replace(bad, cluster=cluster(topic(UPDATES, 12, 1)))


def shown(given: Facts, width: int) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, markup=False, emoji=False)
    for part in rendered(given, audit(given, TABLE), width):
        console.print(part)
    return out.getvalue().splitlines()


def test_no_line_is_wider_than_the_terminal() -> None:
    lines = shown(spoilt(), 80)
    assert max(map(len, lines)) <= 80
    assert "  cleanup policy" in "\n".join(lines)


def test_nothing_is_cut_on_a_narrow_terminal() -> None:
    words = [word for line in shown(spoilt(), 240) for word in line.split()]
    assert set(words) <= {word for line in shown(spoilt(), 80) for word in line.split()}


def test_faults_come_before_warnings_and_those_before_what_is_in_order() -> None:
    text = "\n".join(shown(spoilt(), 80))
    places = [text.index(part) for part in ("faults\n", "warnings\n", "in order\n")]
    assert places == sorted(places)
    assert text.index("cleanup policy") < text.index("compaction pace") < text.index("auto creation")


def test_a_command_that_is_broken_over_lines_is_the_same_to_a_shell() -> None:
    for each in audit(spoilt(), TABLE):
        for command in each.judgement.commands:
            for width in (40, 72, 200):
                broken = wrapped(command, width)
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
    commands = [c for each in audit(spoilt(), TABLE) for c in each.judgement.commands if c.startswith("kafka-")]
    assert sorted(copied) == sorted(map(shlex.split, commands))
    assert any(line.endswith("\\") for line in lines)


def test_json_has_every_finding_with_its_reason_and_its_change() -> None:
    given = spoilt()
    findings = audit(given, TABLE)
    read = json.loads(json.dumps(as_json(given, findings)))
    assert read["verdict"] == "fault"
    assert read["tolerate"] == 1
    by_rule = {each["rule"]: each for each in read["findings"]}
    assert len(by_rule) == len(findings)
    policy = by_rule["cleanup policy"]
    assert (policy["verdict"], policy["group"]) == ("fault", "Log")
    assert policy["protects"]
    assert policy["commands"]


def test_the_verdict_is_the_worst_one() -> None:
    assert verdict(audit(spoilt(), TABLE)) is Severity.FAULT
    assert verdict(audit(facts(planned=(1, 5)), TABLE)) is Severity.WARNING
    assert verdict(audit(facts(), TABLE)) is Severity.OK
