"""The table of modes as the Helm chart reads it: ``deploy/chart/modes.json``, which ``make chart-modes`` writes.

Values are templates of Helm, in which ``.process`` is the process. One that renders to nothing is not set.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from diem.process.addresses import HOST, Ports
from diem.process.modes import CLIENTS_OF_KAFKA, GROUPS, KINDS, RECORDERS, Mode, Place, all_of, reads_urls, settings
from diem.process.settings import PROCESSES

FILE: Final = Path(__file__).parents[1] / "chart" / "modes.json"
MODES: Final = tuple(mode for mode in Mode if mode is not Mode.ALL_TO_ALL)
"""The modes of the chart: the other one is a baseline for measurements on one machine."""
PEERS: Final[Mapping[str, tuple[str, ...]]] = {
    "data": ("broadcast", "websocket", "proxy", "composite"),
    "broadcast": ("websocket",),
    "websocket": ("metadata", "proxy"),
    "metadata": ("proxy", "pipeline"),
}
"""Pods that connect to the internal listener of a process; ``pipeline`` is no process of a mode."""
POD: Final = "$(POD_NAME)"
LISTEN: Final = "{{ .Values.listen }}"
_NAME: Final = "{{ include `diem.name` . }}"
_SASL: Final = "{{ if hasPrefix `SASL` .Values.kafka.securityProtocol }}%s{{ end }}"
_RECORDED: Final = "{{ if ne .Values.traffic.sink `off` }}%s{{ end }}"
_POSTGRES: Final = "{{ with .Values.data.postgres.secret }}%s{{ end }}"
_ORIGINS: Final = "{{ include `diem.origins` . }}"
_PROXIES: Final = "{{ join `,` .Values.trustedProxies }}"

SHARED: Final[Mapping[str, Mapping[str, str]]] = {
    "all": {
        # A state directory is private, and a volume is open to the group of the pod: it is one in the volume.
        "STATE_DIR": "/var/lib/diem/state",
        "INTERNAL_KEY_FILE": "/run/secrets/diem/internal.key",
        "INTERNAL_SOCKETS": "{{ if has .process (list `bridge` `websocket`) }}/tmp/sockets{{ end }}",
        "HEALTH_HOST": LISTEN,
        "HEALTH_PORT": "{{ include `diem.health` .process }}",
        "DRAIN_SECONDS": "{{ .Values.drainSeconds }}",
        "TIME_FACTOR": "{{ .Values.timeFactor }}",
        "LOG_LEVEL": "{{ .Values.logLevel }}",
    },
    "kafka": {
        "BOOTSTRAP_SERVERS": "{{ .Values.kafka.bootstrapServers }}",
        "TOPIC_PREFIX": "{{ .Values.kafka.topicPrefix }}",
        "PARTITIONS": "{{ with .Values.kafka.partitions }}{{ . }}{{ end }}",
        "REPLICATION": "{{ with .Values.kafka.replication }}{{ . }}{{ end }}",
        "SECURITY_PROTOCOL": "{{ .Values.kafka.securityProtocol }}",
        "SASL_MECHANISM": _SASL % "{{ .Values.kafka.sasl.mechanism }}",
        "SASL_USERNAME": _SASL % "{{ (include `diem.kafkaUser` . | fromYaml).username }}",
        "SASL_PASSWORD_FILE": _SASL % "/run/secrets/kafka/password",
        "CA_FILE": "{{ with .Values.kafka.tls.caSecret }}/run/secrets/kafka/ca.crt{{ end }}",
        "CERTIFICATE_FILE": "{{ with .Values.kafka.tls.clientSecret }}/run/secrets/kafka/user.crt{{ end }}",
        "KEY_FILE": "{{ with .Values.kafka.tls.clientSecret }}/run/secrets/kafka/user.key{{ end }}",
    },
    "traffic": {
        "SINK": _RECORDED % "{{ .Values.traffic.sink }}",
        "SALT_FILE": _RECORDED % "/run/secrets/diem/traffic.salt",
        # Children of a composite have names of their own.
        "EDGE": _RECORDED % f"{{{{ if ne .process `composite` }}}}{POD}{{{{ end }}}}",
    },
}
_EDGE: Final = {
    "ORIGINS": _ORIGINS,
    "ANONYMOUS": "{{ .Values.access.anonymous }}",
    "ANONYMOUS_DATA": "{{ .Values.access.anonymousReads }}",
    "TOKEN_KEYS": "{{ include `diem.tokenKeys` . }}",
    "TRUSTED_PROXIES": _PROXIES,
}
_OWN: Final[Mapping[str, Mapping[str, str | None]]] = {
    "data": {
        "WRITE_KEY_FILE": "/run/secrets/diem/write.key",
        "HOSTS": "{{ include `diem.hosts` . }}",
        "ANONYMOUS_READS": "{{ .Values.access.anonymousReads }}",
        "CLIENT_ORIGINS": _ORIGINS,
        "CORS_ORIGINS": "{{ join `,` .Values.access.origins }}",
        "TRUSTED_PROXIES": _PROXIES,
        "CONFIG": "{{ with .Values.data.config }}/etc/diem/diem.toml{{ end }}",
        "DATABASE_URL_FILE": _POSTGRES % "/run/secrets/postgres/url",
        "STANDBY": _POSTGRES % "true",
        "WEBSOCKET_SERVERS": "{{ include `diem.servers` . }}",
        "METADATA_SERVICES": "{{ include `diem.metadataServices` . }}",
    },
    "bridge": {"SERVER_INTERNAL_URL": None, "SERVER_PUBLIC_URL": None},
    "metadata": {"CLONES": None, **_EDGE},
    "websocket": _EDGE,
    # Pods of a Deployment have no numbers.
    "proxy": {"NUMBER": None, **_EDGE},
    "composite": {
        "PAIRS": "{{ .Values.composite.pairs }}",
        "MAX_PAIRS": "{{ include `diem.maxPairs` . }}",
        **_EDGE,
    },
}


def render() -> str:
    """Return the content of ``modes.json``: settings of groups and of processes, ports, and what differs by mode."""
    modes = {mode: {process: _process(mode, process) for process in _processes(mode)} for mode in MODES}
    common = {group: settings(_place(Mode.XZ, "composite"), group) for group in GROUPS}
    for process in PROCESSES:
        there = [own[process] for own in modes.values() if process in own]
        env = common[process] = dict(set.intersection(*(set(each["env"].items()) for each in there)))
        for each in there:
            each["env"] = {name: value for name, value in each["env"].items() if name not in env}
    ports = {
        process: {"public": kind.public, "internal": kind.internal, "peers": PEERS.get(process, ())}
        for process, kind in KINDS.items()
        if process in PROCESSES
    }
    text = json.dumps({"settings": common, "processes": ports, "modes": modes}, indent=1, sort_keys=True)
    # A line for each setting of the first part, and for each process of a mode.
    return re.sub(r"\n {4,}|\n {3}(?=[}\]])", "", text) + "\n"


def _processes(mode: Mode) -> list[str]:
    return [process for process in mode.processes if process in PROCESSES]


def _process(mode: Mode, process: str) -> dict[str, Any]:
    uses_kafka = mode.uses_kafka and process in CLIENTS_OF_KAFKA
    groups = ("all", *(["kafka"] if uses_kafka else []), *(["traffic"] if process in RECORDERS else []))
    env = settings(_place(mode, process), process)
    return {"groups": groups, "serves": mode.serves(process), "env": env}


def _place(mode: Mode, process: str) -> Place:
    numbered = {each: f"{each}-{POD}" if KINDS[each].numbered else each for each in _processes(mode)}
    # A bridge is in the pod of its server.
    hosts = {each: HOST if each == "bridge" else f"{_NAME}-{each}-internal" for each in numbered}
    ports = {numbered[each]: Ports(KINDS[each].public, KINDS[each].internal, hosts[each]) for each in numbered}
    has_peers = not {"pipeline", *mode.processes}.isdisjoint(PEERS.get(process, ()))
    own: dict[str, str | None] = {
        "HOST": LISTEN if mode.serves(process) else HOST,
        "PORT": None,
        # Others' business only where a mode needs it, or monitoring.
        "INTERNAL_HOST": LISTEN if has_peers else f"{{{{ ternary .Values.listen `{HOST}` .Values.metrics.enabled }}}}",
        "INTERNAL_PORT": None,
        "ALLOWED": f"{_NAME}-websocket-internal:{KINDS['websocket'].internal}",
        "READS_URL": reads_urls(all_of("data", ports)),
        **_OWN.get(process, {}),
    }
    if process == "bridge" and mode.partitioned:
        own["SERVER_HOST"] = "$(POD_IP)"
    if process == "bridge" and mode is Mode.Z_CLIENT:
        own["SERVER_PUBLIC_URL"] = f"wss://{POD}.{{{{ .Values.zClient.domain }}}}/ws"
    return Place("{{ .Values.mode }}", process, numbered[process], POD, ports, {**SHARED, process: own})


if __name__ == "__main__":
    FILE.write_text(render(), encoding="utf-8")
