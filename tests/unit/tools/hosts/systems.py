"""Systems on several hosts, as ``diem config`` assigns them."""

from pathlib import Path
from typing import Any, Final

from deploy.topology import KafkaTopology, Mode, PublicAddress
from tests.unit.deploy.topology.topologies import options_of
from tools.hosts.assignment import USUAL, HostedSystem, assign, default_sizes
from tools.hosts.inventory import Host, parse_hosts, with_roles

PUBLIC: Final = PublicAddress("0.0.0.0", Path("/tls/c.pem"), Path("/tls/k.pem"), ("https://app.example",))
THREE: Final = parse_hosts("a=10.0.0.1,b=10.0.0.2,c=10.0.0.3")


def system(mode: Mode, hosts: tuple[Host, ...] = THREE, standby: str | None = None, **others: Any) -> HostedSystem:
    """Return a system on hosts with their usual roles, or with those that they have."""
    placed = with_roles(hosts, mode, standby)
    servers, clones = default_sizes(mode, placed)
    given = {"servers": servers, "clones": clones, "public": PUBLIC} | others
    if mode.uses_kafka:
        given = {"kafka": KafkaTopology(bootstrap_servers="k:9092")} | given
    given.setdefault("max_servers", None if mode is Mode.SINGLE else clones if mode is Mode.XZ else given["servers"])
    return assign(options_of(mode, USUAL.state_dir, **given), placed, USUAL, None)


def names(of: HostedSystem) -> dict[str, list[str]]:
    """Return the names of the processes that run on each host at first."""
    return {host.label: [each.name for each in of.active(host)] for host in of.hosts}
