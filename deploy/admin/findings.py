"""Problems of a system, with remedies for operators; pure.

Findings are made from one status of ``diem up``; the worst come first, and among these those that others depend on.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from deploy.admin import health as of
from deploy.admin.health import HealthLevel, health
from deploy.clients.metadata import PlanStatus
from deploy.system.description import with_children
from deploy.terminal import amount
from diem.process.lifecycle import exit_reason
from diem.protocol.update import iso

BRIDGE_LAG: Final = 10_000
PUBLISHER_LAG: Final = 1_000
"""Lag in records that is a finding, as in the alert rules (``tools/prometheus/alerts.yaml``)."""
RESTARTS: Final = 3
RECENT_S: Final = 600.0
"""A running process is a finding after ``RESTARTS`` deaths, the last within this many seconds."""
PLAN_WAITS_S: Final = 300.0
"""Seconds in one phase after which a waiting plan is a finding."""
UNREACHABLE: Final = "unreachable"
"""Kind of the finding about a process on another host that does not answer."""

_UPSTREAM_FIRST: Final = (
    "kafka",
    "data",
    "broadcast",
    "metadata",
    "bridge",
    "websocket",
    "proxy",
    "composite",
    "nginx",
)


class Finding(NamedTuple):
    """One problem."""

    level: HealthLevel
    kind: str
    """Name of the cause, for programs and tests."""
    processes: tuple[str, ...]
    title: str
    """A short sentence without a full stop."""
    detail: str
    action: str
    """Remedy for the operator."""
    since: str | None = None
    """ISO 8601 in UTC; None if unknown."""


class Situation(NamedTuple):
    """Input of the findings."""

    status: dict[str, Any]
    """Reply of ``status`` of ``diem up``."""
    now_ms: int
    """Unix time of the status."""
    logs: Path | None
    """Directory of the processes' logs; None: in the journals of several hosts."""
    plans: Sequence[PlanStatus] = ()
    refusals: Mapping[str, Mapping[str, int]] = {}
    """Each process's refused clients of the last minute, by cause."""

    def ago(self, seconds: float | None) -> str | None:
        """Return the time ``seconds`` before the status; None for None."""
        return None if seconds is None else iso(int(self.now_ms - seconds * 1000))

    def log(self, name: str) -> str:
        """Return the log of a process; a composite's includes its children's lines."""
        process, _, host = name.partition("/")[0].partition(" on ")
        return f"`journalctl -u diem@{process}` on {host}" if self.logs is None else str(self.logs / f"{process}.log")


def findings(now: Situation) -> list[Finding]:
    """Return all findings, the worst first; many effects of one cause are one."""
    return list(_merged(each_finding(now), now.logs))


def each_finding(now: Situation) -> list[Finding]:
    """Return each finding by itself, the worst first."""
    rows = list(with_children(now.status["processes"]))
    found: list[Finding] = []
    states = {name: health(process) for name, process in rows}
    for name, process in rows:
        basic = list(_of_process(now, name, process))
        found += basic or _of_report(now, name, process)
        # Otherwise, the state of the server is the finding.
        if states[name] is of.NO_READER and states.get(_server_of(name)) is of.READY:
            found.append(_no_reader(now, name))
    found += _of_sources(rows)
    found += _of_plans(now)
    rank = {name: _rank(process["process"]) for name, process in rows}
    order = {level: number for number, level in enumerate(reversed(HealthLevel))}
    found.sort(key=lambda each: (order[each.level], rank.get(each.processes[0] if each.processes else "", 99)))
    return found


def _server_of(bridge: str) -> str:
    """Return the name of a bridge's server, of the same pair."""
    before, _, number = bridge.rpartition("bridge-")
    return f"{before}websocket-{number}"


def _no_reader(now: Situation, name: str) -> Finding:
    return Finding(
        HealthLevel.WARNING,
        "no_reader",
        (name,),
        f"{name} has no reader",
        "Its server runs, and is not connected to it.",
        f"Wait a few seconds. If it stays, read {now.log(_server_of(name))}.",
    )


def _rank(process: str) -> int:
    return _UPSTREAM_FIRST.index(process) if process in _UPSTREAM_FIRST else len(_UPSTREAM_FIRST)


# One process


def _of_process(now: Situation, name: str, process: dict[str, Any]) -> Iterator[Finding]:
    """Yield the finding about a process that is itself unhealthy."""
    state = health(process)
    log, report = now.log(name), process.get("report") or {}
    up_since = now.ago(process["uptime_seconds"])
    if state is of.FAILED:
        yield Finding(
            state.level,
            "failed",
            (name,),
            f"{name} is not restarted",
            f"It ended with {exit_reason(process.get('last_exit') or 0)}: its configuration is wrong.",
            f"Correct the setting that {log} names, then stop and start `diem up`.",
            now.ago(process.get("last_exit_seconds")),
        )
    elif state is of.DOWN:
        yield Finding(
            state.level,
            "down",
            (name,),
            f"{name} is down",
            f"It died ({exit_reason(process['last_exit'])}) and is restarted by itself; {_restarts(process)}.",
            f"Wait a few seconds. If it does not come back, read {log}.",
            now.ago(process.get("last_exit_seconds")),
        )
    elif state is of.STARTING and now.status.get("up"):
        again = f" after it died ({exit_reason(process['last_exit'])})" if process.get("last_exit") is not None else ""
        yield Finding(
            state.level,
            "starting",
            (name,),
            f"{name} is starting",
            f"It runs{again} and is not up to date yet.",
            "Wait a few seconds.",
            up_since,
        )
    elif state is of.NO_ANSWER and now.logs is None:
        yield Finding(
            state.level,
            UNREACHABLE,
            (name,),
            f"{name} cannot be asked",
            "It does not answer this machine: it is down, its host is, or the network in between.",
            f"Read {log}.",
        )
    elif state is of.NO_ANSWER:
        yield Finding(
            state.level,
            "no_answer",
            (name,),
            f"{name} does not answer",
            "It runs, and does not answer on its internal port within a second: "
            "it hangs, or the machine is overloaded.",
            f"Look at the load of the machine, then read {log}. `kill {process['pid']}` restarts it.",
        )
    elif state is of.NOT_READY:
        yield _not_ready(now, name, process, report)
    elif state is of.STALE:
        yield _stale(now, name, process, report)


def _restarts(process: Mapping[str, Any]) -> str:
    return f"{amount(process['restarts'], 'restart')} so far"


def _not_ready(now: Situation, name: str, process: Mapping[str, Any], report: Mapping[str, Any]) -> Finding:
    if process["process"] == "data" and report.get("failure"):
        return Finding(
            HealthLevel.CRITICAL,
            "store",
            (name,),
            f"{name} cannot store changes",
            f"{report['failure']}. Writes are refused with 503, sources wait; reads go on.",
            "Free disk space, or restore access to the database. It recovers by itself.",
        )
    return Finding(
        HealthLevel.CRITICAL,
        "not_ready",
        (name,),
        f"{name} is not ready",
        f"{report['failure']}." if report.get("failure") else "It runs, and is not up to date with what it reads.",
        f"Look for findings about what it reads; then read {now.log(name)}.",
    )


def _stale(now: Situation, name: str, process: Mapping[str, Any], report: Mapping[str, Any]) -> Finding:
    match process["process"]:
        case "websocket":
            silence = report.get("lag_seconds")
            silent = f"No heartbeat of its feed {'yet' if silence is None else f'for {silence:.0f} s'}"
            return Finding(
                HealthLevel.CRITICAL,
                "stale",
                (name,),
                f"{name} is stale",
                f"{silent}. Its clients may see old data, which the page marks.",
                "Look at what feeds it: the Data Service, its bridge, Kafka. It recovers when heartbeats arrive.",
                report.get("since"),
            )
        case "bridge":
            return Finding(
                HealthLevel.CRITICAL,
                "stale_bridge",
                (name,),
                f"{name} does not follow Kafka",
                "Its consumer stalls, or is still catching up.",
                f"Look at Kafka and at the lag below; then read {now.log(name)}.",
            )
        case "metadata":
            silence = report.get("kafka_silence_seconds")
            return Finding(
                HealthLevel.WARNING,
                "stale_metadata",
                (name,),
                f"{name} has no answer from Kafka",
                f"For {silence} s." if silence is not None else "Not since its start.",
                "Look at Kafka. Clients and proxies use the last known owners meanwhile.",
            )
    return Finding(
        HealthLevel.CRITICAL,
        "stale",
        (name,),
        f"{name} is stale",
        f"{report['failure']}." if report.get("failure") else "It has lost what it reads.",
        f"Look at the processes before it; then read {now.log(name)}.",
    )


def _of_report(now: Situation, name: str, process: dict[str, Any]) -> Iterator[Finding]:
    """Yield the findings about a ready and live process."""
    report = process.get("report") or {}
    match process["process"]:
        case "data":
            yield from _of_publisher(name, report.get("publisher") or {})
        case "bridge" if (report.get("lag") or 0) > BRIDGE_LAG:
            yield Finding(
                HealthLevel.WARNING,
                "bridge_lag",
                (name,),
                f"{name} is {report['lag']:,} records behind Kafka",
                "Clients of its server get updates late.",
                "If the lag grows, add servers with `diem scale`; look at the load of the machine.",
            )
        case "metadata":
            yield from _of_metadata(name, report)
        case "proxy":
            yield from _of_proxy(name, report)
    if (process["restarts"] or 0) >= RESTARTS and (process.get("last_exit_seconds") or RECENT_S) < RECENT_S:
        yield Finding(
            HealthLevel.WARNING,
            "restarts",
            (name,),
            f"{name} dies again and again",
            f"{_restarts(process).capitalize()}; the last exit: {exit_reason(process['last_exit'])}.",
            f"Read {now.log(name)}.",
            now.ago(process["last_exit_seconds"]),
        )
    if refused := now.refusals.get(name):
        causes = ", ".join(f"{count:,} {cause.replace('_', ' ')}" for cause, count in refused.items())
        yield Finding(
            HealthLevel.WARNING,
            "refused",
            (name,),
            f"{name} refuses clients",
            f"In the last minute: {causes}.",
            f"{now.log(name)} has reason and address, once a minute; "
            "origins, tokens and limits are in docs/operations.md section 0.",
        )


def _of_publisher(name: str, publisher: Mapping[str, Any]) -> Iterator[Finding]:
    for warning in publisher.get("warnings") or ():
        yield Finding(
            HealthLevel.WARNING,
            "publisher_settings",
            (name,),
            f"Kafka's topics do not admit everything that {name} publishes",
            f"{warning}.",
            "Run the command that the message names.",
        )
    if publisher.get("failure"):
        refused = publisher.get("state") == "publishing"
        yield Finding(
            HealthLevel.CRITICAL,
            "publisher",
            (name,),
            f"Kafka refuses records of {name}" if refused else f"{name} does not reach Kafka",
            f"{publisher['failure']}. Changes are stored, and wait: {publisher.get('lag') or 0:,} so far.",
            "Make the brokers reachable, or run the command that the message names.",
        )
    elif (publisher.get("lag") or 0) > PUBLISHER_LAG:
        yield Finding(
            HealthLevel.WARNING,
            "publisher_lag",
            (name,),
            f"{name} is {publisher['lag']:,} changes behind in Kafka",
            "Clients get updates late.",
            "If the lag grows, look at the brokers and at the load of the machine.",
        )


def _of_metadata(name: str, report: Mapping[str, Any]) -> Iterator[Finding]:
    if report.get("failure"):
        yield Finding(
            HealthLevel.WARNING,
            "metadata",
            (name,),
            f"{name} reports a failure",
            f"{report['failure']}.",
            "Look at Kafka, and at the topic of the partition map.",
        )
    for number, group in (report.get("clones") or {}).items():
        missing = (report.get("partitions") or 0) - (group.get("owned") or 0)
        if group.get("state") == "stable" and missing > 0:
            yield Finding(
                HealthLevel.CRITICAL,
                "partitions",
                (name,),
                f"{amount(missing, 'partition')} without a server",
                f"Group {number} has {amount(len(group.get('members') or ()), 'server')}; no client gets updates of "
                "the endpoints on these partitions.",
                "Start servers (`diem scale`), or look at the bridges: each is a member of its group.",
            )
        elif group.get("state") not in {"stable", None}:
            yield Finding(
                HealthLevel.WARNING,
                "rebalance",
                (name,),
                f"Group {number} is rebalancing",
                "Partitions are being assigned to servers; clients follow.",
                "Wait. If it does not end, look for bridges that come and go.",
            )


def _of_proxy(name: str, report: Mapping[str, Any]) -> Iterator[Finding]:
    if report.get("servers_refused"):
        yield Finding(
            HealthLevel.WARNING,
            "servers_refused",
            (name,),
            f"{name} ignores servers",
            f"Their addresses are not allowed: {', '.join(map(str, report['servers_refused']))}.",
            "Add their internal addresses to DIEM_PROXY_ALLOWED.",
        )
    if report.get("metadata") is False:
        yield Finding(
            HealthLevel.WARNING,
            "no_metadata",
            (name,),
            f"{name} has lost the metadata service",
            "It routes by the last owners that it knows.",
            "Look at the metadata service.",
        )
    if report.get("stale"):
        yield Finding(
            HealthLevel.WARNING,
            "stale_endpoints",
            (name,),
            f"{name} has {amount(report['stale'], 'stale endpoint')}",
            "Their servers are silent, or nobody owns them now; clients are notified.",
            "Look at the servers and bridges.",
        )


# The whole


def _of_sources(rows: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[Finding]:
    for name, process in rows:
        for source in (process.get("report") or {}).get("sources") or ():
            if not source.get("ok") and source.get("error"):
                yield Finding(
                    HealthLevel.WARNING,
                    "source",
                    (name,),
                    f"Source {source.get('name')} fails",
                    f"{source['error']}. Its data stays as it was.",
                    "It is tried again by itself. Look at what it reads, and at diem.toml.",
                    # No time: other files of a directory may have been read since the fault began.
                )


def _of_plans(now: Situation) -> Iterator[Finding]:
    limit = now.ago(PLAN_WAITS_S) or ""
    for plan in now.plans:
        if plan.is_in_progress and plan.waiting_for and plan.since is not None and plan.since < limit:
            yield Finding(
                HealthLevel.WARNING,
                "plan_waits",
                (),
                f"Plan {plan.id} waits",
                f"It waits for {plan.waiting_for}.",
                f"Look at the servers and at the Data Service; `diem rollback {plan.id}` takes it back.",
                plan.since,
            )


# Several at once


class _Plural(NamedTuple):
    """Texts of a finding about several processes or sources.

    ``{}`` in the title is their number, in the action the directory of the logs.
    """

    title: str
    detail: str
    action: str


_MERGED: Final[Mapping[str, _Plural]] = {
    "down": _Plural(
        "{} processes are down",
        "They died, and are restarted by themselves.",
        "Wait a few seconds. If they do not come back, read their logs in {}.",
    ),
    "starting": _Plural("{} processes are starting", "They are not up to date yet.", "Wait a few seconds."),
    "no_answer": _Plural(
        "{} processes do not answer",
        "They run, and do not answer on their internal ports within a second: they hang, or the machine is overloaded.",
        "Look at the load of the machine, then read their logs in {}.",
    ),
    UNREACHABLE: _Plural(
        "{} processes cannot be asked",
        "They do not answer this machine: they are down, their hosts are, or the network in between.",
        "Read {}.",
    ),
    "not_ready": _Plural(
        "{} processes are not ready",
        "They run, and are not up to date with what they read.",
        "Look for findings about what they read; then read their logs in {}.",
    ),
    "stale": _Plural(
        "{} servers are stale",
        "No heartbeats of their feeds. Clients there may see old data, which the page marks.",
        "Look at what feeds them: the Data Service, their bridges, Kafka. They recover when heartbeats arrive.",
    ),
    "stale_bridge": _Plural(
        "{} bridges do not follow Kafka",
        "Their consumers stall, or are still catching up.",
        "Look at Kafka and at the lag below; then read their logs in {}.",
    ),
    "source": _Plural(
        "{} sources fail",
        "Their data stays as it was; the table below has the errors.",
        "They are tried again by themselves. Look at what they read, and at diem.toml.",
    ),
    "refused": _Plural(
        "{} processes refuse clients",
        "The table below counts since the start.",
        "Their logs in {} have reason and address, once a minute; "
        "origins, tokens and limits are in docs/operations.md section 0.",
    ),
}
NAMED: Final = 4
"""Maximum number of processes named in a merged finding."""


def listed(names: Sequence[str]) -> str:
    """Return names in a sentence, at most :data:`NAMED`."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def _merged(found: Iterable[Finding], logs: Path | None) -> Iterator[Finding]:
    """Merge findings of one kind, to show one cause with many effects in few lines."""
    groups: dict[tuple[HealthLevel, str], list[Finding]] = {}
    for each in found:
        groups.setdefault((each.level, each.kind), []).append(each)
    for (level, kind), same in groups.items():
        texts = _MERGED.get(kind)
        if len(same) == 1 or texts is None:
            yield from same
            continue
        names = [name for each in same for name in each.processes]
        titles = [each.title.removesuffix(" fails") for each in same] if kind == "source" else names
        yield Finding(
            level,
            kind,
            tuple(dict.fromkeys(names)),
            texts.title.format(len(same)),
            f"{listed(titles)}. {texts.detail}",
            texts.action.format(logs or "the journals of their hosts"),
            min((each.since for each in same if each.since), default=None),
        )


class Verdict(NamedTuple):
    """The state of the whole, in one line."""

    state: str
    """``well``, ``starting``, ``warning`` or ``critical``."""
    headline: str
    findings: list[Finding]


def verdict(now: Situation) -> Verdict:
    """Judge the whole."""
    found = findings(now)
    if not now.status.get("up"):
        return Verdict("starting", "Starting", found)
    if not found:
        return Verdict("well", "All well", found)
    others = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return Verdict(str(found[0].level), f"{found[0].title}{others}", found)
