"""Rules of message safety: what N brokers may take with them when they are lost (thesis, sections 4.6 and 7.2)."""

from collections.abc import Iterator
from typing import Final

from deploy.check.facts import INTERNAL, OFFSETS, Facts, amount, replicas_of
from deploy.check.rule import Judgement, Rule, fault, ok, warning
from deploy.check.tools import of_cluster, remake, set_all_brokers, set_topic
from deploy.kafka.brokers import SIZES

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
    """Replication factor >= 2 N + 1; N + 1 is enough not to lose data, but not to go on writing."""
    have, needed = replicas_of(facts.topic), facts.needed_replicas
    lost = amount(facts.tolerate, "broker")
    if have >= needed:
        return ok(f"{amount(have, 'replica')} of every partition")
    risk = "may lose updates" if have <= facts.tolerate else "loses nothing, but stops the writes"
    found = f"{amount(have, 'replica')} of a partition: losing {lost} {risk}"
    if facts.started and needed > max(SIZES):
        return fault(found, f"`diem up` runs at most {max(SIZES)} brokers: --bootstrap-servers of a larger cluster")
    words, lines = remake(facts, needed, "--replication", str(needed))
    first = "" if len(facts.cluster.brokers) >= needed or facts.started else f"run {needed} brokers, then "
    return fault(found, first + words, *lines)


def min_in_sync(facts: Facts) -> Judgement:
    """min.insync.replicas = N + 1, and few enough that writes go on without N replicas."""
    value, needed = int(facts.of_topic(facts.updates, MIN_IN_SYNC)), facts.needed_in_sync
    have = replicas_of(facts.topic)
    change = set_topic(facts, facts.updates, {MIN_IN_SYNC: str(needed)})
    if value > have:
        return fault(f"{value} of {amount(have, 'replica')} must be in sync: nothing can be written", "", change)
    if value < needed:
        held = "only the leader has" if value == 1 else f"only {value} replicas have"
        after = "" if have >= needed else "after the replication is mended"
        return fault(f"{value}: a record counts when {held} it", after, change)
    if have >= facts.needed_replicas and have - value < facts.tolerate:
        stops = amount(have - value + 1, "broker")
        return fault(f"{value} of {have}: writes stop when {stops} are lost", "", change)
    return ok(f"{value} of {amount(have, 'replica')}")


def unclean_election(facts: Facts) -> Judgement:
    """unclean.leader.election.enable=false for our topics and Kafka's own."""
    _ = facts.topic
    topics = [*facts.ours, *_internal(facts)]
    wrong = [name for name in topics if facts.of_topic(name, UNCLEAN) != "false"]
    if not wrong:
        return ok(f"off for {', '.join(topics)}")
    lines = [set_topic(facts, name, {UNCLEAN: "false"}) for name in wrong]
    return fault(f"on for {', '.join(wrong)}: a replica that lags may become leader", "", *lines)


def internal_replication(facts: Facts) -> Judgement:
    """Kafka's own topics are replicated like ours: 2 N + 1, at least N + 1."""
    have = {name: _internal_replicas(facts, name) for name in INTERNAL}
    few = {name: number for name, number in have.items() if number < facts.needed_replicas}
    found = ", ".join(f"{name} {number}" for name, number in have.items())
    if not few:
        return ok(found)
    judge = fault if min(few.values()) < facts.needed_in_sync else warning
    return judge(
        f"replicas: {found}; {facts.needed_replicas} are needed",
        "in every broker's server.properties before they are made; with the tool when they are there (FILE lists the "
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
            lines.append(set_topic(facts, name, {MIN_IN_SYNC: str(facts.needed_in_sync)}))
        elif name == OFFSETS:
            lines.append(set_all_brokers(facts, wanted))
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
    if not voters:  # a quorum that changes while it runs is described by its own tool alone
        servers = {s for v in facts.of_brokers("controller.quorum.bootstrap.servers").values() for s in v.split(",")}
        return _judge_controllers(facts, len(servers - {""}), "bootstrap server")
    return _judge_controllers(facts, len(voters), "voter")


def _judge_controllers(facts: Facts, number: int, noun: str) -> Judgement:
    if number >= facts.needed_replicas:
        return ok(amount(number, noun))
    found = f"{amount(number, noun)}: without a majority no leader is elected"
    wanted = f"controller.quorum.voters: {facts.needed_replicas} of them, on {facts.needed_replicas} machines"
    line = of_cluster(facts, "kafka-metadata-quorum.sh", "describe", "--status")
    return fault(found, wanted) if noun == "voter" else warning(found, wanted, line)


def machines(facts: Facts) -> Judgement | None:
    """Brokers that share a machine are lost together."""
    hosts = {host for host, _port in facts.cluster.brokers.values()}
    brokers = len(facts.cluster.brokers)
    if facts.tolerate == 0 or brokers < 2:
        return None
    if len(hosts) >= min(facts.needed_replicas, brokers):
        return ok(f"{amount(brokers, 'broker')} on {amount(len(hosts), 'machine')}")
    return warning(
        f"{amount(brokers, 'broker')} on {amount(len(hosts), 'machine')}: its loss is the loss of all on it",
        f"{facts.needed_replicas} brokers on machines of their own; the brokers of `diem up` are for trying out",
    )


def auto_create(facts: Facts) -> Judgement:
    """auto.create.topics.enable=false: only we make our topics."""
    wrong = [number for number, value in facts.of_brokers("auto.create.topics.enable").items() if value != "false"]
    if not wrong:
        return ok("off")
    return fault(
        f"on at {_brokers(wrong)}: whoever asks for a missing topic makes it, with the brokers' defaults",
        "in server.properties, then restart one broker after the other",
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
        yield of_cluster(facts, "kafka-reassign-partitions.sh", "--reassignment-json-file", "FILE", "--execute")


def _property(settings: dict[str, str]) -> str:
    return "\n".join(f"{key}={value}" for key, value in settings.items())


def _brokers(numbers: list[int]) -> str:
    return f"broker{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


RULES: Final = (
    Rule("replication", "updates outlive lost brokers, and writes go on", "thesis 7.2, 4.6", replication),
    Rule("min in sync", "an acknowledged update is on N + 1 brokers", "thesis 7.2, 4.6", min_in_sync),
    Rule("unclean election", "no replica that misses updates becomes leader", "thesis 7.2, 4.6", unclean_election),
    Rule("internal replication", "groups and transactions outlive lost brokers", "thesis 7.2", internal_replication),
    Rule("internal min in sync", "so does what was acknowledged to them", "thesis 7.2", internal_min_in_sync),
    Rule("controllers", "leaders are elected when a controller is lost", "thesis 5.3", controllers),
    Rule("machines", "N lost machines are no more than N lost brokers", "thesis 7.2", machines),
    Rule("auto creation", "no topic appears with settings that lose data", "reliability 3.5", auto_create),
)
