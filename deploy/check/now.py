"""Rules of the present moment: what is up, led, in sync and evenly spread now."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from deploy.check.facts import Facts, amount
from deploy.check.rule import Judgement, Rule, fault, ok, warning
from deploy.check.safety import MIN_IN_SYNC
from deploy.check.tools import make_topics, of_cluster
from diem.kafka.metadata import Partition

_SHOWN: Final = 4
"""Partitions that are named one by one."""


def brokers_up(facts: Facts) -> Judgement:
    """Every broker that has a replica, or that `diem up` runs, is up."""
    holders = {
        n for topic in facts.cluster.topics.values() for part in topic.partitions.values() for n in part.replicas
    }
    missing = sorted((holders | facts.started) - set(facts.cluster.brokers))
    up = amount(len(facts.cluster.brokers), "broker")
    if facts.silent:
        named = ", ".join(map(str, sorted(facts.silent)))
        return fault(f"{up} listed; without an answer: {named}", "see what holds them up; a stopped one goes on later")
    if not missing:
        return ok(up)
    named = ", ".join(map(str, missing))
    return fault(f"{up} up; missing: {named}", "start what is missing; its log says why it ended")


def exists(facts: Facts) -> Judgement:
    """The updates topic is there."""
    found = facts.cluster.topics.get(facts.updates)
    if found is not None and found.partitions:
        return ok(f"{facts.updates} with {amount(len(found.partitions), 'partition')}")
    found_none = f"there is no topic {facts.updates}, or this user may not see it"
    return fault(found_none, "start the publisher, which makes it, or make it now", make_topics(facts))


def led(facts: Facts) -> Judgement:
    """Every partition of every topic has a leader."""
    orphans = [name for name, part in _partitions(facts) if part.leader < 0]
    if not orphans:
        return ok("every partition has a leader")
    return fault(f"without a leader: {_named(orphans)}", "start the brokers that have their replicas")


def in_sync(facts: Facts) -> Judgement:
    """Every replica is in sync; fewer than min.insync.replicas of our topics refuse writes."""
    behind = [name for name, part in _partitions(facts) if len(part.isr) < len(part.replicas)]
    if not behind:
        return ok("every replica is in sync")
    refused = {name: least for name in facts.ours if (least := _refused_below(facts, name))}
    change = "wait, or start the brokers that are missing"
    line = of_cluster(facts, "kafka-topics.sh", "--describe", "--under-replicated-partitions")
    if refused:
        least = max(refused.values())
        return fault(f"fewer than {least} in sync, writes are refused: {_named(behind)}", change, line)
    return warning(f"not all replicas in sync: {_named(behind)}", change, line)


def _refused_below(facts: Facts, name: str) -> int:
    """How many replicas must be in sync, if a partition of the topic has fewer; else 0."""
    least = int(facts.of_topic(name, MIN_IN_SYNC)) if facts.cluster.topics[name].partitions else 0
    return least if any(len(part.isr) < least for part in facts.cluster.topics[name].partitions.values()) else 0


def spread(facts: Facts) -> Judgement | None:
    """The leaders of our topic are spread evenly over the brokers that are up."""
    brokers = facts.cluster.brokers
    if len(brokers) < 2:
        return None
    parts = facts.topic.partitions.values()
    leads = Counter(part.leader for part in parts)
    shares = {number: leads[number] for number in sorted(brokers)}
    found = "leaders: " + ", ".join(f"broker {number} {share}" for number, share in shares.items())
    if max(shares.values()) <= -(-len(parts) // len(brokers)):
        return ok(found)
    preferred = Counter(part.replicas[0] for part in parts)
    if max(preferred.values()) < max(shares.values()):
        elect = ("--election-type", "preferred", "--all-topic-partitions")
        return warning(found, "elect the preferred leaders", of_cluster(facts, "kafka-leader-election.sh", *elect))
    return warning(
        found,
        "spread the replicas (FILE names the topic)",
        of_cluster(
            facts, "kafka-reassign-partitions.sh", "--generate", "--topics-to-move-json-file", "FILE",
            "--broker-list", ",".join(map(str, sorted(brokers))),
        ),
    )  # fmt: skip


def _partitions(facts: Facts) -> Iterator[tuple[str, Partition]]:
    for name, topic in facts.cluster.topics.items():
        for number, part in topic.partitions.items():
            yield f"{name}/{number}", part


def _named(partitions: list[str]) -> str:
    more = len(partitions) - _SHOWN
    return ", ".join(partitions[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


RULES: Final = (
    Rule("brokers", "as many may be lost as was planned", "thesis 7.2", brokers_up),
    Rule("topic", "updates have a place to go", "protocol 3", exists),
    Rule("leaders", "every partition is written and read", "thesis 4.6", led),
    Rule("in sync", "as many brokers may be lost now as was planned", "thesis 4.6", in_sync),
    Rule("spread", "brokers share the work", "thesis 5.2", spread),
)
