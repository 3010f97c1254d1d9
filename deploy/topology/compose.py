"""Describes every process of a mode as it is to be run."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from deploy.topology import environment
from deploy.topology.model import HOST, Planned, Ports, Readiness, Slot, Topology
from deploy.topology.options import Mode, Options
from deploy.topology.settings import check_settings
from deploy.topology.slots import sizes_of, slots

_DIALLED = frozenset({"websocket", "proxy", "composite"})
"""The processes whose public listener takes clients."""


@dataclass(frozen=True, slots=True)
class Programs:
    """The command lines: `diem` runs processes of ours, `others` has those of brokers and nginx by name."""

    diem: tuple[str, ...]
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def compose(options: Options, ports: Mapping[str, Ports], programs: Programs) -> Topology:
    """Describe every process of the mode, also those that only `diem scale` starts.

    Raises:
        BadTopology: the options do not fit the mode, or a setting is for a process that there is not.
    """
    mode = options.mode
    size = sizes_of(options)
    wanted = slots(mode, size)
    check_settings(options.settings, [slot.name for slot in wanted])
    page = ports["nginx" if mode.behind_nginx else "data"].public
    metadata = [ports["metadata"].public] if mode is Mode.Z_CLIENT else []
    return Topology(
        mode=mode,
        processes=tuple(_plan(slot, options, ports, programs) for slot in wanted),
        servers=size.clones if mode is Mode.XZ else size.servers,
        max_servers=size.max_servers,
        clones=size.clones,
        pairs=size.servers if mode.edge == "composite" else 0,
        page_url=f"http://{HOST}:{page}/",
        rest_url=f"http://{HOST}:{page}/v1",
        websocket_urls=tuple(f"ws://{HOST}:{port}/ws" for port in environment.edge_ports(mode, ports)),
        metadata_urls=tuple(f"http://{HOST}:{port}/v1" for port in metadata),
    )


def overridden(topology: Topology, environ: Mapping[str, str]) -> list[str]:
    """Return the variables of the environment that the plan gives other values, which would be ignored in silence.

    Those of Kafka are options of `diem up` in the modes that use it, and nothing elsewhere.
    """
    planned = {name: value for process in topology.processes for name, value in process.env.items()}
    own = {"DIEM_STATE_DIR", "DIEM_LOG_LEVEL", "DIEM_DRAIN_SECONDS", "DIEM_TIME_FACTOR"}
    ignored = {name for name in planned if name not in own and environ.get(name, planned[name]) != planned[name]}
    if not topology.mode.uses_kafka:
        ignored |= {name for name in environ if name.startswith("DIEM_KAFKA_")}
    return sorted(ignored)


def _plan(slot: Slot, options: Options, ports: Mapping[str, Ports], programs: Programs) -> Planned:
    own = ports[slot.name]
    foreign = programs.others.get(slot.name)
    return Planned(
        name=slot.name,
        process=slot.process,
        number=slot.number,
        stage=slot.stage,
        argv=foreign or (*programs.diem, "run", slot.process),
        env=_environment(slot, options, ports) | dict(options.settings.get(slot.name, {})),
        ports=own,
        public_url=_public_url(slot, own),
        internal_url=f"http://{HOST}:{own.internal}" if _readiness(slot) is Readiness.READYZ else None,
        readiness=_readiness(slot),
        sweep=slot.process == "nginx",  # its workers outlive it, and hold the port
    )


def _environment(slot: Slot, options: Options, ports: Mapping[str, Ports]) -> dict[str, str]:
    match slot.process:
        case "data":
            own = environment.data(options, ports)
        case "broadcast":
            own = environment.broadcast(ports)
        case "bridge":
            own = environment.bridge(options, ports, slot)
        case "websocket":
            own = environment.websocket(options, ports, slot)
        case "metadata":
            own = environment.metadata(options, ports)
        case "proxy":
            own = environment.proxy(options, ports, slot)
        case "composite":
            own = environment.composite(options, ports, slot)
        case _:
            return {}
    return environment.shared(options) | environment.listeners(slot, ports[slot.name]) | own


def _readiness(slot: Slot) -> Readiness:
    return {"nginx": Readiness.HTTP, "kafka": Readiness.CONNECT}.get(slot.process, Readiness.READYZ)


def _public_url(slot: Slot, own: Ports) -> str | None:
    if own.public is None or slot.process == "kafka":
        return None
    return f"ws://{HOST}:{own.public}/ws" if slot.process in _DIALLED else f"http://{HOST}:{own.public}/"
