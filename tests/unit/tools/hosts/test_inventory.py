from pathlib import Path

import pytest

from deploy.topology import BadTopology, Mode
from tools.hosts.inventory import Host, HostRole, load_hosts, needed_roles, parse_hosts, with_roles


def test_hosts_are_names_with_addresses_or_addresses_alone() -> None:
    assert parse_hosts("a=10.0.0.1, b=2001:db8::2") == (
        Host("a", "10.0.0.1", "10.0.0.1"),
        Host("b", "2001:db8::2", "[2001:db8::2]"),
    )
    assert [host.label for host in parse_hosts("10.0.0.1,10.0.0.2")] == ["host1", "host2"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a=db.internal", "host a needs an IP address"),
        ("a=", "host a needs an IP address"),
        ("a=0.0.0.0", "0.0.0.0 is no address of a host"),
        ("../a=10.0.0.1", "the name of a host has lower-case letters"),
        ("a=10.0.0.1,a=10.0.0.2", "two hosts have the name a"),
        ("a=10.0.0.1,b=10.0.0.1", "two hosts have the address 10.0.0.1"),
        (",".join(f"10.0.1.{n}" for n in range(65)), "1 to 64 hosts, not 65"),
    ],
)
def test_a_host_that_could_not_be_reached_or_named_is_refused(text: str, fault: str) -> None:
    with pytest.raises(BadTopology, match=fault):
        parse_hosts(text)


def test_first_host_has_everything_but_servers_unless_roles_are_given() -> None:
    first, *others = with_roles(parse_hosts("10.0.0.1,10.0.0.2,10.0.0.3"), Mode.X)
    assert first.roles == {HostRole.DATA, HostRole.NGINX}
    assert [host.roles for host in others] == [{HostRole.SERVERS}] * 2
    (alone,) = with_roles(parse_hosts("10.0.0.1"), Mode.X)
    assert alone.roles == {HostRole.DATA, HostRole.NGINX, HostRole.SERVERS}


def test_file_gives_roles_and_public_names(tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(
        '[[host]]\nname = "a"\naddress = "10.0.0.1"\npublic = "a.example"\nroles = ["data", "proxy", "metadata"]\n'
        '[[host]]\nname = "b"\naddress = "10.0.0.2"\nroles = ["standby", "servers", "proxy", "nginx"]\n'
    )
    a, b = with_roles(load_hosts(file), Mode.Z_PROXY)
    assert (a.public, b.public) == ("a.example", "10.0.0.2")
    assert a.roles == {HostRole.DATA, HostRole.METADATA, HostRole.PROXY}
    assert b.roles == {HostRole.STANDBY, HostRole.SERVERS, HostRole.PROXY}, "nginx is not of this mode"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("[[host]\n", "hosts.toml: "),
        ('hosts = ["a"]\n', r"it has a table \[\[host\]\] for each host"),
        ('[[host]]\nname = "a"\naddress = "10.0.0.1"\nrole = ["data"]\n', "a host has name, .*, not 'role'"),
        ('[[host]]\nname = "a"\naddress = "10.0.0.1"\nroles = ["date"]\n', r"roles of a are data, .*, not \['date'\]"),
        ('[[host]]\nname = "a"\naddress = "10.0.0.1"\npublic = "https://a"\n', "public of a is the name"),
    ],
)
def test_fault_of_a_file_is_named(tmp_path: Path, content: str, fault: str) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(content)
    with pytest.raises(BadTopology, match=fault):
        load_hosts(file)


@pytest.mark.parametrize("mode", Mode)
def test_role_that_a_mode_needs_and_no_host_has_is_named(mode: Mode) -> None:
    for role in needed_roles(mode):
        hosts = [Host("a", "10.0.0.1", "a", needed_roles(mode) - {role} | {HostRole.STANDBY})]
        with pytest.raises(BadTopology, match=f"no host has the role {role}, which mode {mode} needs"):
            with_roles(hosts, mode)


def test_one_host_has_the_store_and_its_stand_by_is_elsewhere() -> None:
    hosts = parse_hosts("a=10.0.0.1,b=10.0.0.2")
    assert HostRole.STANDBY in with_roles(hosts, Mode.X, "b")[1].roles
    with pytest.raises(BadTopology, match="a has the Data Service already"):
        with_roles(hosts, Mode.X, "a")
    with pytest.raises(BadTopology, match="--standby d: no host has this name"):
        with_roles(hosts, Mode.X, "d")
    everything = frozenset({HostRole.DATA, HostRole.NGINX, HostRole.SERVERS})
    twice = [Host("a", "10.0.0.1", "a", everything), Host("b", "10.0.0.2", "b", everything)]
    with pytest.raises(BadTopology, match="a and b have the role data: only one host may have it"):
        with_roles(twice, Mode.X)
