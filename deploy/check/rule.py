"""Rules, and the evaluation of a table of rules into findings."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from deploy.check.facts import Facts, NotVisible, TopicMissing


class Severity(StrEnum):
    """How bad it is; the order is that of the report. Any fault makes `diem check` fail."""

    FAULT = "fault"
    WARNING = "warning"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a rule says: what is there, and what to change, in words and as `commands` for a shell."""

    verdict: Severity
    found: str
    change: str = ""
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One guideline. `judge` is pure; it returns None where there is nothing to judge."""

    name: str
    protects: str
    source: str
    """Where it is explained: a section of docs/protocol.md, of docs/reliability.md or of the thesis."""
    judge: Callable[[Facts], Judgement | None]


@dataclass(frozen=True, slots=True)
class Finding:
    """A judgement with the rule that made it; `group` is the heading that the rule stands under."""

    group: str
    rule: Rule
    judgement: Judgement


Table = Iterable[tuple[str, Iterable[Rule]]]


def ok(found: str) -> Judgement:
    """Nothing to change."""
    return Judgement(Severity.OK, found)


def warning(found: str, change: str, *commands: str) -> Judgement:
    """Something that works and could be better, or that cannot be seen."""
    return Judgement(Severity.WARNING, found, change, commands)


def fault(found: str, change: str, *commands: str) -> Judgement:
    """Something that breaks a promise, now or when something fails."""
    return Judgement(Severity.FAULT, found, change, commands)


def audit(facts: Facts, table: Table) -> list[Finding]:
    """Judge the facts by every rule, in the table's order."""
    findings = []
    for group, rules in table:
        for rule in rules:
            judgement = _judge(rule, facts)
            if judgement is not None:
                findings.append(Finding(group, rule, judgement))
    return findings


def _judge(rule: Rule, facts: Facts) -> Judgement | None:
    try:
        return rule.judge(facts)
    except TopicMissing:
        return None  # that the topic is missing is a finding of its own
    except NotVisible as hidden:
        return warning(
            f"the cluster does not show {hidden}",
            "give this user the rights that `diem topics --print` lists for check",
        )
