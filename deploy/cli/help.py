"""The help of ``diem``: the parser's own, with the commands grouped by purpose."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from typer.core import TyperGroup

GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "Run a system": {
        "up": "Start every process of a mode and keep them running; Ctrl-C stops them.",
        "status": "Show the processes that `diem up` runs, or those on several hosts, with their state.",
        "top": "Show what runs, how fast, and what is wrong, every second until Ctrl-C, with curves of 15 minutes.",
        "doctor": "Check this machine: files, ports, limits, clock, certificates, Kafka, and what runs.",
        "why": "Explain why a client does not get updates of an endpoint: each hop, the cause, and what to do.",
        "scale": "Change the number of servers (of composites in mode xz).",
        "run": "Run one process, configured by its environment (see `diem config`).",
        "config": "Print every setting of the processes: variable, type, default, meaning; of a mode, what it sets "
        "for each process.",
    },
    "Read and write data": {
        "watch": "Print updates of endpoints as they arrive, until Ctrl-C.",
        "get": "Print the data of an endpoint as it is stored, or the members of a collection such as /game/42/.",
        "put": "Store a file as the data of an endpoint.",
        "patch": "Change a part of the data of an endpoint.",
        "notify": "Announce a change of data that lives elsewhere.",
        "delete": "Delete an endpoint; its subscribers are notified.",
        "new": "Make a front end of your own from an example.",
        "sources": "The sources of diem.toml.",
    },
    "Operate it": {
        "keys": "Create, list and revoke API keys and write keys; make the keys of a new system.",
        "tokens": "List and rotate the keys that sign client tokens.",
        "backup": "Write the whole store to a file or a pipe.",
        "restore": "Restore a backup as a new store, with a new version of each endpoint.",
        "metrics": "List every metric, or print what Prometheus and Grafana need to show them.",
        "load": "Connect many clients to a running system; measure delays, and check that nothing was missed.",
        "canary": "Write an endpoint in each partition every few seconds, and name each server and proxy that "
        "delivers it late.",
    },
    "Choose its size, and check Kafka": {
        "recommend": "Recommend a mode for the running system, for recorded traffic, or for a few numbers.",
        "size": "Compute how many brokers, partitions and replicas a workload needs: the running system's, or a given "
        "one.",
        "check": "Audit a Kafka cluster for durability, retention and security.",
        "topics": "Create missing topics and check the others, or print the commands that create them.",
    },
    "Learn a placement from traffic": {
        "pipeline": "Turn recorded traffic into tables and statistics with Spark.",
        "plan": "Learn from recorded traffic which endpoints belong together, and plan which server holds each.",
        "apply": "Apply a plan: move its endpoints, and show the progress.",
        "rollback": "Undo a plan: move its endpoints back to where they were.",
        "plans": "List the submitted plans, with the progress of each.",
        "autoplan": "Plan from recorded traffic on a schedule, apply the plans that pay off, and print each decision.",
    },
}
"""The commands of each group with the first sentence of their help; those of other packages are in a last group.

The help of all commands imports none of these: it is fast, and needs no extra.
"""


class CommandGroups(TyperGroup):
    """All commands in groups, or those of one of them."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  # their types are private
        """Write the commands of each group with the first sentence of their help, like the base class."""
        groups: Mapping[str, Iterable[str]] = {} if ctx.parent else GROUPS
        named = {name for names in groups.values() for name in names}
        others = [name for name in self.list_commands(ctx) if name not in named]
        title_of_others = "Commands" if ctx.parent else "Other commands"
        for title, names in {**groups, title_of_others: others}.items():
            found = [(name, command) for name in names if (command := self.get_command(ctx, name)) is not None]
            if found:
                with formatter.section(title):
                    formatter.write_dl([(name, command.get_short_help_str(limit=200)) for name, command in found])
