"""Rules of clients: options of our producer and consumers, who may connect (docs/reliability.md 3.5, 5.2)."""

import ipaddress
from typing import Final, NamedTuple

from tools.check.facts import Facts, Judgement, NotVisible, Rule, fault, ok, warning

_IN_CODE: Final = "in the code: it is not a setting"


def acks(facts: Facts) -> Judgement:
    """acks=all: an acknowledged record is on min.insync.replicas brokers. aiokafka's own default is 1."""
    value = facts.producer.get("acks", 1)
    return ok("all") if value in {"all", -1} else fault(f"acks={value}", f"acks=all {_IN_CODE}")


def idempotence(facts: Facts) -> Judgement:
    """enable.idempotence: a retried batch is neither duplicated nor reordered."""
    value = facts.producer.get("enable_idempotence", False)
    return ok("idempotent") if value is True else fault("not idempotent", f"enable_idempotence=True {_IN_CODE}")


def send_timeout(facts: Facts) -> Judgement:
    """A send outlasts a change of leaders: twice the brokers' session timeout (election and first retry)."""
    value = facts.producer.get("request_timeout_ms", 40_000)
    session = max(int(text) for text in facts.of_brokers("broker.session.timeout.ms").values())
    found = f"sends wait {value} ms; the loss of a broker is noticed after {session} ms"
    if isinstance(value, int) and value >= 2 * session:
        return ok(found)
    return warning(
        f"{found}: until then sends fail and are retried", "in server.properties (this is the default)", _SESSION
    )


def manual_commits(facts: Facts) -> Judgement:
    """No automatic commits: ours follow the work, show progress to lag tools, and are never start positions."""
    value = facts.consumer.get("enable_auto_commit", True)
    found = "manual, after the batch has been forwarded; offsets show progress and are never start positions"
    return ok(found) if value is False else fault("automatic", f"enable_auto_commit=False {_IN_CODE}")


def start_position(facts: Facts) -> Judgement:
    """A bridge starts at its server's position, else at the log's start; ``latest`` would skip updates."""
    value = facts.consumer.get("auto_offset_reset", "latest")
    return ok(str(value)) if value in {"earliest", "none"} else fault(str(value), f"earliest {_IN_CODE}")


_SESSION: Final = "broker.session.timeout.ms=9000"

CLIENTS: Final = (
    Rule("acks", "an update is acknowledged once N + 1 brokers have it", "thesis 7.2, 4.6", acks),
    Rule("idempotence", "updates of an endpoint keep their order", "thesis 7.2, 4.10", idempotence),
    Rule("send timeout", "the loss of a broker does not fail sends", "reliability 5.2", send_timeout),
    Rule("commits", "progress is recorded only for what has been read", "thesis 7.2, 4.10", manual_commits),
    Rule("start", "a new reader misses no updates", "internals 3", start_position),
)


_EVERYONE: Final = "allow.everyone.if.no.acl.found"


class BrokerListener(NamedTuple):
    """One listener of a broker: its name, the address that it binds, and its security protocol."""

    name: str
    host: str
    protocol: str


def listeners_of(facts: Facts) -> set[BrokerListener]:
    """Return the listeners of all brokers, including those of controllers. Raises ``NotVisible``."""
    bound, protocols = facts.of_brokers("listeners"), facts.of_brokers("listener.security.protocol.map")
    found = set()
    for number, text in bound.items():
        named = dict(pair.split(":", 1) for pair in protocols[number].split(",") if ":" in pair)
        for listener in filter(None, text.split(",")):
            name, _, address = listener.strip().partition("://")
            found.add(BrokerListener(name, address.rpartition(":")[0].strip("[]"), named.get(name, name)))
    return found


def is_loopback(host: str) -> bool:
    """Return whether a host is reachable from its own machine only; an empty one means every address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listeners(facts: Facts) -> Judgement:
    """No PLAINTEXT and no SASL_PLAINTEXT outside loopback."""
    outside = sorted(one for one in listeners_of(facts) if not is_loopback(one.host))
    if not outside:
        return ok("loopback only")
    found = ", ".join(f"{one.name} ({one.protocol}) on {one.host or 'every address'}" for one in outside)
    change = "in server.properties: SASL_SSL or SSL for every listener outside loopback"
    if any(one.protocol == "PLAINTEXT" for one in outside):
        return fault(f"{found}: anyone on the network can read and write", change)
    if any(one.protocol == "SASL_PLAINTEXT" for one in outside):
        return warning(f"{found}: anyone on the network can read", change)
    return ok(found)


def connection(facts: Facts) -> Judgement:
    """Our own connection is encrypted unless it stays on this machine."""
    addresses = [*(server.strip() for server in facts.bootstrap_servers.split(","))]
    hosts = {address.rpartition(":")[0].strip("[]") for address in addresses}
    hosts |= {host for host, _port in facts.cluster.brokers.values()}
    away = sorted(host for host in hosts if not is_loopback(host))
    if not away:
        return ok("loopback only")
    if facts.security_protocol.endswith("SSL"):
        return ok(facts.security_protocol)
    return fault(
        f"{facts.security_protocol} to {', '.join(away)}",
        "for every process (and --security-protocol here)",
        "DIEM_KAFKA_SECURITY_PROTOCOL=SASL_SSL",
    )


def authorizer(facts: Facts) -> Judgement:
    """A cluster that others can reach has an authorizer."""
    without = [str(number) for number, name in facts.of_brokers("authorizer.class.name").items() if not name]
    if not without:
        return ok(next(iter(facts.of_brokers("authorizer.class.name").values())).rpartition(".")[2])
    if _on_this_machine_only(facts):
        return ok("none: users of this machine have all rights, others none")
    return fault(
        f"none at broker {', '.join(without)}: anyone may do anything",
        "in server.properties, with the rights from `diem topics --print`",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    )


def closed_by_default(facts: Facts) -> Judgement | None:
    """allow.everyone.if.no.acl.found=false (the default): a resource without a rule is closed."""
    if not any(facts.of_brokers("authorizer.class.name").values()):
        return None
    # The setting is the authorizer's, not Kafka's: absent means the default, and a set value may be hidden.
    values = {n: facts.brokers.get(n, {}).get(_EVERYONE, "false") for n in facts.cluster.brokers}
    opened = [str(number) for number, value in sorted(values.items()) if value == "true"]
    if opened:
        change = "in server.properties, then restart the brokers one by one"
        return fault(
            f"on at broker {', '.join(opened)}: resources without a rule are open", change, f"{_EVERYONE}=false"
        )
    if None in values.values():
        return warning(
            "set, but the cluster does not show the value", "check that server.properties has", f"{_EVERYONE}=false"
        )
    return ok("off")


def _on_this_machine_only(facts: Facts) -> bool:
    try:
        return all(is_loopback(one.host) for one in listeners_of(facts))
    except NotVisible:
        return False


SECURITY: Final = (
    Rule("listeners", "no one on the network can read or write", "reliability 3.5", listeners),
    Rule("connection", "no one can read or change what is sent", "reliability 3.5", connection),
    Rule("authorizer", "only DIEM writes updates", "reliability 3.5", authorizer),
    Rule("closed by default", "resources without a rule are closed", "reliability 3.5", closed_by_default),
)
