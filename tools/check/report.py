"""The audit: evaluate every rule, and render the findings as text (faults first, in full) or as JSON.

Pure: the command in ``tools.commands.check`` collects the facts and prints. The rules are one module per subject:
``rules_cluster``, ``rules_topics``, ``rules_clients``.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import indent
from typing import Any, Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from deploy.invocation import pasteable
from deploy.terminal import amount
from tools.check import rules_clients, rules_cluster, rules_topics
from tools.check.facts import Facts, Judgement, NotVisible, Rule, RuleResult, Severity, TopicMissing, warning
from tools.check.tools import wrap_command

TABLE: Final = (
    ("Now", rules_cluster.CURRENT_STATE),
    ("Message safety", rules_cluster.MESSAGE_SAFETY),
    ("Log", (*rules_topics.LOG, *rules_topics.SIDE_TOPICS)),
    ("Partitions", rules_topics.PARTITIONS),
    ("Clients", rules_clients.CLIENTS),
    ("Security", rules_clients.SECURITY),
)
"""All rules, in the order of the report."""

_STYLES: Final = {Severity.FAULT: "bold red", Severity.WARNING: "yellow", Severity.OK: "green"}
_INDENT: Final = 4
_NAME: Final = 21
"""Columns of the longest rule's name and a gap."""


def audit(facts: Facts) -> list[RuleResult]:
    """Evaluate every rule, in the order of ``TABLE``."""
    findings = []
    for group, rules in TABLE:
        for rule in rules:
            judgement = _evaluate(rule, facts)
            if judgement is not None:
                findings.append(RuleResult(group, rule, judgement))
    return findings


def _evaluate(rule: Rule, facts: Facts) -> Judgement | None:
    try:
        return rule.evaluate(facts)
    except TopicMissing:
        return None  # a separate rule reports the missing topic
    except NotVisible as hidden:
        return warning(
            f"the cluster does not show {hidden}",
            "give this user the rights that `diem topics --print` lists for check",
        )


def worst(findings: Sequence[RuleResult]) -> Severity:
    """Return the worst verdict."""
    return next((each for each in Severity if any(f.judgement.verdict is each for f in findings)), Severity.OK)


def as_json(facts: Facts, findings: Sequence[RuleResult]) -> dict[str, Any]:
    """Return everything as one JSON object."""
    return {
        "cluster": facts.cluster.id,
        "brokers": {str(number): f"{host}:{port}" for number, (host, port) in facts.cluster.brokers.items()},
        "topic": facts.updates,
        "tolerate": facts.tolerate,
        "planned": list(facts.planned),
        "verdict": worst(findings),
        "findings": [
            {
                "group": finding.group,
                "rule": finding.rule.name,
                "verdict": finding.judgement.verdict,
                "protects": finding.rule.protects,
                "source": finding.rule.source,
                "found": finding.judgement.found,
                "change": finding.judgement.change,
                "commands": list(finding.judgement.commands),
            }
            for finding in findings
        ],
    }


def render(facts: Facts, findings: Sequence[RuleResult], width: int) -> Iterator[RenderableType]:
    """Yield the output for a console of ``width`` columns: faults and warnings in full, the rest in a line each."""
    lost = "no loss of brokers" if facts.tolerate == 0 else f"the loss of {amount(facts.tolerate, 'broker')}"
    yield Text(f"Kafka at {facts.bootstrap_servers}, topic {facts.updates}, checked for {lost}")
    for each in Severity:
        chosen = [finding for finding in findings if finding.judgement.verdict is each]
        if not chosen:
            continue
        yield Text()
        yield Text(_heading(each, len(chosen)), style=_STYLES[each])
        for group, members in groupby(chosen, key=lambda finding: finding.group):
            yield Text(f"  {group}", style="bold")
            for finding in members:
                yield from _render_row(finding) if each is Severity.OK else _render_in_full(finding, width)


def _heading(each: Severity, number: int) -> str:
    return f"{number} OK" if each is Severity.OK else amount(number, str(each))


def _render_row(finding: RuleResult) -> Iterator[RenderableType]:
    yield _two_columns(Text(finding.rule.name), Text(finding.judgement.found))


def _render_in_full(finding: RuleResult, width: int) -> Iterator[RenderableType]:
    judgement = finding.judgement
    yield _two_columns(Text(finding.rule.name, style=_STYLES[judgement.verdict]), Text(judgement.found))
    yield _two_columns(Text("  protects", style="dim"), Text(finding.rule.protects, style="dim"))
    if judgement.change:
        yield _two_columns(Text("  change", style="dim"), Text(pasteable(judgement.change)))
    for command in judgement.commands:
        # Not a table cell, which is padded: a space after the `\` would end the shell's line.
        yield Text(
            indent(wrap_command(command, width - 2 * _INDENT), 2 * _INDENT * " "), no_wrap=True, overflow="ignore"
        )


def _two_columns(left: Text, right: Text) -> RenderableType:
    table = Table.grid(padding=(0, 0))
    table.add_column(width=_NAME)
    table.add_column(overflow="fold")
    table.add_row(left, right)
    return Padding(table, (0, 0, 0, _INDENT), expand=False)
