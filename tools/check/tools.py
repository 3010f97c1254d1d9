"""Command lines of Kafka's own tools: suggested changes, and the output of ``diem topics --print``."""

import shlex
from collections.abc import Iterator, Mapping
from textwrap import indent, wrap
from typing import Final

from deploy.invocation import diem_command
from deploy.kafka.rights import ROLES, Right, purposes
from diem.errors import ConfigurationError
from diem.kafka.config import KafkaOptions
from diem.kafka.topics import DEFAULT_REPLICATION, TopicSpec, specs, traffic_spec
from tools.check.facts import Facts

CLIENT_FILE: Final = "client.properties"
"""Name of the file with the security settings of Kafka's tools in printed lines."""
TOOLS: Final = "kafka-"
"""Prefix of the names of Kafka's tools."""
_OTHER_OPTION: Final = {"kafka-leader-election.sh": "--admin.config"}


def tool_line(bootstrap_servers: str, security_protocol: str, name: str, *arguments: str) -> str:
    """Return the command line of one of Kafka's tools, with our connection."""
    option = _OTHER_OPTION.get(name, "--command-config")
    secured = () if security_protocol == "PLAINTEXT" else (option, CLIENT_FILE)
    return shlex.join((name, "--bootstrap-server", bootstrap_servers, *secured, *arguments))


def cluster_line(facts: Facts, name: str, *arguments: str) -> str:
    """Return the command line of a tool for the cluster of the facts."""
    return tool_line(facts.bootstrap_servers, facts.security_protocol, name, *arguments)


def set_topic_line(facts: Facts, topic: str, settings: Mapping[str, str]) -> str:
    """Return the line that changes settings of a topic."""
    entity = ("--entity-type", "topics", "--entity-name", topic)
    return cluster_line(facts, "kafka-configs.sh", "--alter", *entity, "--add-config", _join_settings(settings))


def set_brokers_line(facts: Facts, settings: Mapping[str, str]) -> str:
    """Return the line that changes the brokers' default of dynamic settings."""
    entity = ("--entity-type", "brokers", "--entity-default")
    return cluster_line(facts, "kafka-configs.sh", "--alter", *entity, "--add-config", _join_settings(settings))


def recreate_topics(facts: Facts, brokers: int, *options: str) -> tuple[str, tuple[str, ...]]:
    """Return how to recreate our topics, in words and as lines; ``brokers`` is for a cluster started by ``diem up``.

    No update is lost: the publisher detects the new topics and resends the store's updates, and every reader starts
    over (docs/internals.md section 3). The partition map is recreated too, because it holds the number of partitions; a
    running publisher would recreate the old one.
    """
    if facts.started:
        words = (
            "stop `diem up`, remove the folder kafka in its state directory, and start it like this; no update is lost"
        )
        return words, (diem_command("up", *facts.restart, "--brokers", str(brokers), *options),)
    away = (cluster_line(facts, "kafka-topics.sh", "--delete", "--topic", name) for name in facts.ours)
    words = "stop the Data Service, recreate the topics, and start it again; no update is lost"
    return words, (*away, create_topics_line(facts, *options))


def create_topics_line(facts: Facts, *options: str) -> str:
    """Return the ``diem topics`` line that creates the topics; security options come from the environment."""
    prefix = facts.updates.removesuffix("updates")
    where = () if facts.started else ("--bootstrap-servers", facts.bootstrap_servers)
    named = () if prefix == "diem." else ("--topic-prefix", prefix)
    return diem_command("topics", *where, *named, *options)


def _join_settings(settings: Mapping[str, str]) -> str:
    """Return settings in the syntax of the tools; a value with commas is in brackets."""
    return ",".join(f"{key}=[{value}]" if "," in value else f"{key}={value}" for key, value in settings.items())


PRINCIPALS: Final[Mapping[str, str]] = {str(role): f"User:{role.login}" for role in ROLES}
"""Default principals by role; the names are arbitrary."""


def parse_principals(given: list[str]) -> dict[str, str]:
    """Return the principal of every role from texts such as ``data=User:alice``; a plain name is a user's.

    Raises:
        ConfigurationError: a text is not of this form.
    """
    chosen = dict(PRINCIPALS)
    for text in given:
        role, _, name = text.partition("=")
        if role not in PRINCIPALS or not name:
            raise ConfigurationError(
                f"--principal is ROLE=NAME with one of the roles {', '.join(PRINCIPALS)}, not {text!r}"
            )
        chosen[role] = name if ":" in name else f"User:{name}"
    return chosen


def topic_lines(options: KafkaOptions, brokers: int = DEFAULT_REPLICATION) -> list[str]:
    """Return the ``kafka-topics.sh`` lines for creating this system's topics on this many brokers."""
    return [_topic_line(options, spec) for spec in specs(options, brokers)]


def traffic_lines(options: KafkaOptions, brokers: int = DEFAULT_REPLICATION) -> list[str]:
    """Return the line that creates the topic of recorded traffic, with a comment on its use."""
    need = "# Only where traffic is recorded in Kafka. Settings such as retention.ms may be changed."
    return [need, _topic_line(options, traffic_spec(options, brokers))]


def _topic_line(options: KafkaOptions, spec: TopicSpec) -> str:
    sizes = ("--partitions", str(spec.partitions), "--replication-factor", str(spec.replication))
    configs = [word for key, value in spec.config.items() for word in ("--config", f"{key}={value}")]
    return _line(options, "kafka-topics.sh", "--create", "--topic", spec.name, *sizes, *configs)


def acl_lines(options: KafkaOptions, who: Mapping[str, str] = PRINCIPALS) -> Iterator[str]:
    """Yield the ``kafka-acls.sh`` lines that grant every role its rights; comments give the purpose."""
    for purpose in purposes(options.names):
        yield from (f"# {line}" for line in purpose.why)
        for right in purpose.rights:
            line = _allow(options, who[right.role], right)
            yield f"# {line}" if purpose.outdated else line


def _allow(options: KafkaOptions, principal: str, right: Right) -> str:
    wanted = [word for operation in right.operations for word in ("--operation", operation)]
    pattern = ("--resource-pattern-type", "prefixed") if right.prefixed else ()
    resource = (f"--{right.resource}", *(() if right.resource == "cluster" else (right.name,)))
    return _line(options, "kafka-acls.sh", "--add", "--allow-principal", principal, *wanted, *pattern, *resource)


def _line(options: KafkaOptions, name: str, *arguments: str) -> str:
    return tool_line(options.bootstrap_servers, options.security_protocol, name, *arguments)


def wrap_command(command: str, width: int) -> str:
    r"""Wrap a shell command at word boundaries; all lines but the last end in ``\``, ready to copy."""
    lines = [""]
    for word in map(shlex.quote, shlex.split(command)):
        longer = f"{lines[-1]} {word}".strip() if len(lines) == 1 else f"{lines[-1]} {word}"
        if lines[-1].strip() and len(longer) > width - 2:
            lines.append(f"  {word}")
        else:
            lines[-1] = longer
    return " \\\n".join(lines)


def wrap_line(line: str, width: int) -> str:
    """Wrap a line of ``topics --print``: a command, a comment, or a command in a comment."""
    if not line.startswith("# "):
        return wrap_command(line, width)
    text = line.removeprefix("# ")
    if text.startswith(TOOLS):
        return indent(wrap_command(text, width - 2), "# ")
    return "\n".join(wrap(text, width, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False))
