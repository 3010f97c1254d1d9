"""Describes every process of a mode as it is to be run."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from deploy.topology import environment
from deploy.topology.model import HOST, Mode, Options, Planned, Ports, Readiness, Slot, Topology
from deploy.topology.settings import check_settings
from deploy.topology.slots import sizes, slots


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
    size = sizes(options.mode, options.servers, options.max_servers, options.kafka.local_brokers)
    wanted = slots(options.mode, size)
    check_settings(options.settings, [slot.name for slot in wanted])
    edge = ports["nginx" if options.mode.behind_nginx else "websocket-1"].public
    page = ports["nginx" if options.mode.behind_nginx else "data"].public
    return Topology(
        mode=options.mode,
        processes=tuple(_plan(slot, options, ports, programs) for slot in wanted),
        max_servers=size.max_servers,
        page_url=f"http://{HOST}:{page}/",
        rest_url=f"http://{HOST}:{page}/v1",
        websocket_urls=(f"ws://{HOST}:{edge}/ws",),
    )


def overridden(topology: Topology, environ: Mapping[str, str]) -> list[str]:
    """Return the variables of the environment that the plan gives other values, which would be ignored in silence.

    Those of Kafka are options of `diem up` in mode x, and nothing elsewhere.
    """
    planned = {name: value for process in topology.processes for name, value in process.env.items()}
    own = {"DIEM_STATE_DIR", "DIEM_LOG_LEVEL", "DIEM_DRAIN_SECONDS", "DIEM_TIME_FACTOR"}
    ignored = {name for name in planned if name not in own and environ.get(name, planned[name]) != planned[name]}
    if topology.mode is not Mode.X:
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
            own = environment.bridge(options, ports, slot.number)
        case "websocket":
            own = environment.websocket(options, ports, slot.number)
        case _:
            return {}
    return environment.shared(options) | environment.listeners(slot, ports[slot.name]) | own


def _readiness(slot: Slot) -> Readiness:
    return {"nginx": Readiness.HTTP, "kafka": Readiness.CONNECT}.get(slot.process, Readiness.READYZ)


def _public_url(slot: Slot, own: Ports) -> str | None:
    if own.public is None or slot.process == "kafka":
        return None
    return f"ws://{HOST}:{own.public}/ws" if slot.process == "websocket" else f"http://{HOST}:{own.public}/"
