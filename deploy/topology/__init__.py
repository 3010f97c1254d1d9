"""From the table of modes (``diem.process.modes``) and options to processes with ports and settings; pure.

Ports are those of docs/protocol.md section 4.

Reading order: ``model``, ``options`` (the request) with ``public_address`` and ``access`` (who clients are), ``slots``
(which processes), ``ports``, ``kafka_users`` (of local brokers), ``compose`` (settings of each process). The other
rooms import these names from here.
"""

from deploy.topology.access import ClientAccess, client_access, has_anonymous_plan
from deploy.topology.compose import Programs, compose, overridden
from deploy.topology.model import HOST, Planned, Ports, Readiness, Slot, StopStage, Topology
from deploy.topology.options import (
    Clients,
    Content,
    Durations,
    KafkaTopology,
    Options,
    Scaling,
    Traffic,
    check_settings,
    parse_settings,
)
from deploy.topology.ports import assign_ports, fixed_ports, moved_ports, protectable
from deploy.topology.public_address import (
    CLIENT_ORIGINS,
    BadTopology,
    PublicAddress,
    origins_in,
    parse_listen,
    parse_networks,
    parse_origins,
)
from deploy.topology.slots import AUTO, MAX_SERVERS, Sizes, sizes, sizes_of, slots, start_of
from diem.process.modes import Mode

__all__ = [
    "AUTO",
    "CLIENT_ORIGINS",
    "HOST",
    "MAX_SERVERS",
    "BadTopology",
    "ClientAccess",
    "Clients",
    "Content",
    "Durations",
    "KafkaTopology",
    "Mode",
    "Options",
    "Planned",
    "Ports",
    "Programs",
    "PublicAddress",
    "Readiness",
    "Scaling",
    "Sizes",
    "Slot",
    "StopStage",
    "Topology",
    "Traffic",
    "assign_ports",
    "check_settings",
    "client_access",
    "compose",
    "fixed_ports",
    "has_anonymous_plan",
    "moved_ports",
    "origins_in",
    "overridden",
    "parse_listen",
    "parse_networks",
    "parse_origins",
    "parse_settings",
    "protectable",
    "sizes",
    "sizes_of",
    "slots",
    "start_of",
]
