"""Rules of the cluster: its current state, and the effects of N lost brokers (thesis, sections 4.6 and 7.2).

One module per subject; ``report`` has the table of all rules.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from deploy.kafka.brokers import SIZES
from deploy.terminal import amount
from diem.kafka.metadata import Partition
from diem.kafka.topic_config import INTERNAL, OFFSETS
from tools.check.facts import Facts, Judgement, Rule, fault, ok, replicas_of, warning
from tools.check.tools import cluster_line, create_topics_line, recreate_topics, set_brokers_line, set_topic_line

_MAX_NAMED: Final = 4
"""Maximum number of partitions listed individually."""


def brokers_up(facts: Facts) -> Judgement:
    """Every broker that has a replica, or that ``diem up`` runs, is up."""
    holders = {
        n for topic in facts.cluster.topics.values() for part in topic.partitions.values() for n in part.replicas
    }
    missing = sorted((holders | facts.started) - set(facts.cluster.brokers))
    up = amount(len(facts.cluster.brokers), "broker")
    if facts.silent:
        named = ", ".join(map(str, sorted(facts.silent)))
        return fault(
            f"{up} listed; no answer from {named}", "find out why they do not answer; a paused broker may continue"
        )
    if not missing:
        return ok(up)
    named = ", ".join(map(str, missing))
    return fault(f"{up} up; missing: {named}", "start the missing brokers; their logs say why they stopped")


def topic_exists(facts: Facts) -> Judgement:
    """The updates topic exists."""
    found = facts.cluster.topics.get(facts.updates)
    if found is not None and found.partitions:
        return ok(f"{facts.updates} with {amount(len(found.partitions), 'partition')}")
    found_none = f"topic {facts.updates} does not exist, or this user may not see it"
    return fault(found_none, "start the Data Service, which creates it, or create it now", create_topics_line(facts))


def all_led(facts: Facts) -> Judgement:
    """Every partition of every topic has a leader."""
    orphans = [name for name, part in _partitions(facts) if part.leader < 0]
    if not orphans:
        return ok("every partition has a leader")
    return fault(f"without a leader: {_name_some(orphans)}", "start the brokers that hold their replicas")


def replicas_in_sync(facts: Facts) -> Judgement:
    """Every replica is in sync; fewer than min.insync.replicas of our topics refuse writes."""
    lagging = [name for name, part in _partitions(facts) if len(part.isr) < len(part.replicas)]
    if not lagging:
        return ok("every replica is in sync")
    refused = {name: least for name in facts.ours if (least := _refused_below(facts, name))}
    change = "wait, or start the brokers that are missing"
    line = cluster_line(facts, "kafka-topics.sh", "--describe", "--under-replicated-partitions")
    if refused:
        least = max(refused.values())
        return fault(f"fewer than {least} in sync, writes are refused: {_name_some(lagging)}", change, line)
    return warning(f"not all replicas in sync: {_name_some(lagging)}", change, line)


def _refused_below(facts: Facts, name: str) -> int:
    """Return the required number of in-sync replicas if a partition of the topic has fewer; else 0."""
    least = int(facts.of_topic(name, MIN_IN_SYNC)) if facts.cluster.topics[name].partitions else 0
    return least if any(len(part.isr) < least for part in facts.cluster.topics[name].partitions.values()) else 0


def leaders_spread(facts: Facts) -> Judgement | None:
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
        return warning(found, "elect the preferred leaders", cluster_line(facts, "kafka-leader-election.sh", *elect))
    return warning(
        found,
        "spread the replicas (FILE names the topic)",
        cluster_line(
            facts, "kafka-reassign-partitions.sh", "--generate", "--topics-to-move-json-file", "FILE",
            "--broker-list", ",".join(map(str, sorted(brokers))),
        ),
    )  # fmt: skip


def _partitions(facts: Facts) -> Iterator[tuple[str, Partition]]:
    for name, topic in facts.cluster.topics.items():
        for number, part in topic.partitions.items():
            yield f"{name}/{number}", part


def _name_some(partitions: list[str]) -> str:
    more = len(partitions) - _MAX_NAMED
    return ", ".join(partitions[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


CURRENT_STATE: Final = (
    Rule("brokers", "the planned number of brokers may fail", "thesis 7.2", brokers_up),
    Rule("topic", "updates can be written", "internals 3", topic_exists),
    Rule("leaders", "every partition can be written and read", "thesis 4.6", all_led),
    Rule("in sync", "the planned number of brokers may fail now", "thesis 4.6", replicas_in_sync),
    Rule("spread", "brokers share the work", "thesis 5.2", leaders_spread),
)


MIN_IN_SYNC: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"
_REPLICATION_OF_NEW: Final = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
}
_MIN_IN_SYNC_OF_NEW: Final = {
    "__consumer_offsets": MIN_IN_SYNC,
    "__transaction_state": "transaction.state.log.min.isr",
}


def replication(facts: Facts) -> Judgement:
    """Replication factor >= 2 N + 1; N + 1 suffices to keep data, but not to keep writing."""
    have, needed = replicas_of(facts.topic), facts.needed_replicas
    lost = amount(facts.tolerate, "broker")
    if have >= needed:
        return ok(f"{amount(have, 'replica')} of every partition")
    risk = "may lose updates" if have <= facts.tolerate else "loses nothing, but stops writes"
    found = f"{amount(have, 'replica')} of a partition: losing {lost} {risk}"
    if facts.started and needed > max(SIZES):
        return fault(
            found, f"`diem up` runs at most {max(SIZES)} brokers: use --bootstrap-servers with a larger cluster"
        )
    words, lines = recreate_topics(facts, needed, "--replication", str(needed))
    first = "" if len(facts.cluster.brokers) >= needed or facts.started else f"run {needed} brokers, then "
    return fault(found, first + words, *lines)


def min_in_sync(facts: Facts) -> Judgement:
    """min.insync.replicas = N + 1, and low enough to keep writing without N replicas."""
    value, needed = int(facts.of_topic(facts.updates, MIN_IN_SYNC)), facts.needed_in_sync
    have = replicas_of(facts.topic)
    change = set_topic_line(facts, facts.updates, {MIN_IN_SYNC: str(needed)})
    if value > have:
        return fault(f"{value} of {amount(have, 'replica')} must be in sync: nothing can be written", "", change)
    if value < needed:
        held = "only the leader has" if value == 1 else f"only {value} replicas have"
        after = "" if have >= needed else "once the replication is fixed"
        return fault(f"{value}: a record is acknowledged when {held} it", after, change)
    if have >= facts.needed_replicas and have - value < facts.tolerate:
        stops = amount(have - value + 1, "broker")
        return fault(f"{value} of {have}: writes stop when {stops} fail", "", change)
    return ok(f"{value} of {amount(have, 'replica')}")


def unclean_election(facts: Facts) -> Judgement:
    """unclean.leader.election.enable=false for our topics and Kafka's own."""
    _ = facts.topic
    topics = [*facts.ours, *_internal(facts)]
    wrong = [name for name in topics if facts.of_topic(name, UNCLEAN) != "false"]
    if not wrong:
        return ok(f"off for {', '.join(topics)}")
    lines = [set_topic_line(facts, name, {UNCLEAN: "false"}) for name in wrong]
    return fault(f"on for {', '.join(wrong)}: a replica that lacks updates may become leader", "", *lines)


def internal_replication(facts: Facts) -> Judgement:
    """Kafka's own topics are replicated like ours: 2 N + 1, at least N + 1."""
    have = {name: _internal_replicas(facts, name) for name in INTERNAL}
    few = {name: number for name, number in have.items() if number < facts.needed_replicas}
    found = ", ".join(f"{name} {number}" for name, number in have.items())
    if not few:
        return ok(found)
    verdict_of = fault if min(few.values()) < facts.needed_in_sync else warning
    return verdict_of(
        f"replicas: {found}; {facts.needed_replicas} are needed",
        "in every broker's server.properties before the topics exist, with the tool afterwards (FILE lists the "
        "replicas of every partition)",
        *_mend_internal_replication(facts, few),
    )


def internal_min_in_sync(facts: Facts) -> Judgement:
    """Kafka's own topics acknowledge like ours: N + 1 replicas."""
    have = {name: _internal_min_in_sync(facts, name) for name in INTERNAL}
    few = {name: value for name, value in have.items() if value < facts.needed_in_sync}
    found = ", ".join(f"{name} {value}" for name, value in have.items())
    if not few:
        return ok(found)
    lines = []
    for name in few:
        wanted = {_MIN_IN_SYNC_OF_NEW[name]: str(facts.needed_in_sync)}
        if name in facts.cluster.topics:
            lines.append(set_topic_line(facts, name, {MIN_IN_SYNC: str(facts.needed_in_sync)}))
        elif name == OFFSETS:
            lines.append(set_brokers_line(facts, wanted))
        else:
            lines.append(_property(wanted))
    return fault(
        f"in sync: {found}; {facts.needed_in_sync} are needed",
        "once they are replicated; NAME=VALUE lines go into every broker's server.properties",
        *lines,
    )


def controllers(facts: Facts) -> Judgement | None:
    """A majority of the controllers is left when N are lost: 2 N + 1 of them."""
    voters = {voter for value in facts.of_brokers("controller.quorum.voters").values() for voter in value.split(",")}
    voters.discard("")
    if not voters:  # only its own tool describes a dynamic quorum
        servers = {s for v in facts.of_brokers("controller.quorum.bootstrap.servers").values() for s in v.split(",")}
        return _check_controllers(facts, len(servers - {""}), "bootstrap server")
    return _check_controllers(facts, len(voters), "voter")


def _check_controllers(facts: Facts, number: int, noun: str) -> Judgement:
    if number >= facts.needed_replicas:
        return ok(amount(number, noun))
    found = f"{amount(number, noun)}: without a majority no leader is elected"
    wanted = f"controller.quorum.voters: {facts.needed_replicas} of them, on {facts.needed_replicas} machines"
    line = cluster_line(facts, "kafka-metadata-quorum.sh", "describe", "--status")
    return fault(found, wanted) if noun == "voter" else warning(found, wanted, line)


def machines(facts: Facts) -> Judgement | None:
    """Brokers sharing a machine or a rack (``broker.rack``) are lost together."""
    hosts = {host for host, _port in facts.cluster.brokers.values()}
    brokers = len(facts.cluster.brokers)
    if facts.tolerate == 0 or brokers < 2:
        return None
    if facts.cluster.racks:
        return _racks(facts, brokers)
    if len(hosts) >= min(facts.needed_replicas, brokers):
        return ok(f"{amount(brokers, 'broker')} on {amount(len(hosts), 'machine')}")
    return warning(
        f"{amount(brokers, 'broker')} on {amount(len(hosts), 'machine')}: losing a machine loses all its brokers",
        f"{facts.needed_replicas} brokers on separate machines; the brokers of `diem up` are for evaluation",
    )


def _racks(facts: Facts, brokers: int) -> Judgement:
    """Judge racks: every broker has one, there are enough, and a partition's replicas are in different ones."""
    racks = facts.cluster.racks
    if without := sorted(set(facts.cluster.brokers) - set(racks)):
        found = f"{_brokers(without)} without broker.rack, which others have: Kafka ignores all of them"
        return warning(found, "in server.properties, then restart the brokers one by one", "broker.rack=NAME")
    number = len(set(racks.values()))
    if number < min(facts.needed_replicas, brokers):
        found = f"{amount(brokers, 'broker')} in {amount(number, 'rack')}: losing a rack loses all its brokers"
        return warning(found, f"brokers in {facts.needed_replicas} racks (broker.rack)")
    together = [
        f"{name}/{partition}"
        for name in facts.ours
        for partition, part in facts.cluster.topics[name].partitions.items()
        if len({racks.get(node) for node in part.replicas}) < min(len(part.replicas), number)
    ]
    if together:
        shown = ", ".join(together[:_SHOWN_PARTITIONS]) + (" ..." if len(together) > _SHOWN_PARTITIONS else "")
        found = f"{amount(len(together), 'partition')} with several replicas in one rack ({shown})"
        return warning(found, "reassign them (kafka-reassign-partitions.sh --generate spreads replicas over racks)")
    return ok(f"{amount(brokers, 'broker')} in {amount(number, 'rack')}")


_SHOWN_PARTITIONS: Final = 3


def auto_create(facts: Facts) -> Judgement:
    """auto.create.topics.enable=false: only we create our topics."""
    wrong = [number for number, value in facts.of_brokers("auto.create.topics.enable").items() if value != "false"]
    if not wrong:
        return ok("off")
    return fault(
        f"on at {_brokers(wrong)}: a request for a missing topic creates it, with the brokers' defaults",
        "in server.properties, then restart the brokers one by one",
        "auto.create.topics.enable=false",
    )


def _internal(facts: Facts) -> list[str]:
    return [name for name in INTERNAL if name in facts.cluster.topics]


def _internal_replicas(facts: Facts, name: str) -> int:
    if name in facts.cluster.topics:
        return replicas_of(facts.cluster.topics[name])
    return min(int(value) for value in facts.of_brokers(_REPLICATION_OF_NEW[name]).values())


def _internal_min_in_sync(facts: Facts, name: str) -> int:
    if name in facts.cluster.topics:
        return int(facts.of_topic(name, MIN_IN_SYNC))
    return min(int(value) for value in facts.of_brokers(_MIN_IN_SYNC_OF_NEW[name]).values())


def _mend_internal_replication(facts: Facts, few: dict[str, int]) -> Iterator[str]:
    there = [name for name in few if name in facts.cluster.topics]
    for name in few:
        if name not in there:
            yield _property({_REPLICATION_OF_NEW[name]: str(facts.needed_replicas)})
    if there:
        yield cluster_line(facts, "kafka-reassign-partitions.sh", "--reassignment-json-file", "FILE", "--execute")


def _property(settings: dict[str, str]) -> str:
    return "\n".join(f"{key}={value}" for key, value in settings.items())


def _brokers(numbers: list[int]) -> str:
    return f"broker{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


MESSAGE_SAFETY: Final = (
    Rule("replication", "updates survive the loss of brokers, and writes continue", "thesis 7.2, 4.6", replication),
    Rule("min in sync", "an acknowledged update is on N + 1 brokers", "thesis 7.2, 4.6", min_in_sync),
    Rule("unclean election", "no replica that lacks updates becomes leader", "thesis 7.2, 4.6", unclean_election),
    Rule(
        "internal replication",
        "groups and transactions survive the loss of brokers",
        "thesis 7.2",
        internal_replication,
    ),
    Rule("internal min in sync", "and so does what they were acknowledged", "thesis 7.2", internal_min_in_sync),
    Rule("controllers", "leaders can be elected when a controller fails", "thesis 5.3", controllers),
    Rule("machines", "losing N machines loses at most N brokers", "thesis 7.2", machines),
    Rule("auto creation", "no topic is created with settings that lose data", "reliability 3.5", auto_create),
)
