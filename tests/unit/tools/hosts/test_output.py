import json
import stat
from pathlib import Path

import pytest

from deploy.topology import Mode, Traffic
from diem.process.auth import BadKeyFile
from diem.process.key_ring import KeyRing, KeyRole
from tests.unit.tools.hosts.systems import system
from tools.hosts.inventory import Host, HostRole
from tools.hosts.keys import needed_keys
from tools.hosts.output import write_system
from tools.hosts.readme import render_readme


def keys_of(out: Path, label: str) -> set[str]:
    return {path.name for path in (out / "hosts" / label / "keys").glob("*")}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_hosts_have_exactly_the_keys_that_their_processes_need(tmp_path: Path) -> None:
    write_system(system(Mode.Z_PROXY), tmp_path, None, None)
    both = {"internal.key", "feed.key", "metadata.key", "metrics.key", "traffic.salt"}
    assert keys_of(tmp_path, "a") == {*both, "admin.key", "write.key"}
    assert keys_of(tmp_path, "b") == keys_of(tmp_path, "c") == both
    own = {(tmp_path / "hosts" / label / "keys" / "internal.key").read_text() for label in "abc"}
    assert len(own) == 3, "what opens everything on a host opens nothing on another one"
    assert len({(tmp_path / "hosts" / label / "keys" / "feed.key").read_text() for label in "abc"}) == 1


@pytest.mark.parametrize("mode", [Mode.X, Mode.XZ, Mode.Z_PROXY, Mode.Z_COMPOSITE, Mode.Z_CLIENT])
def test_no_host_without_the_data_service_can_make_api_keys(mode: Mode, tmp_path: Path) -> None:
    with_data = Host("a", "10.0.0.1", "a", frozenset({HostRole.DATA}))
    others = Host("b", "10.0.0.2", "b", frozenset(HostRole) - {HostRole.DATA, HostRole.STANDBY})
    write_system(system(mode, (with_data, others)), tmp_path, None, None)
    data, other = (KeyRing.load(tmp_path / "hosts" / label / "keys" / "internal.key") for label in "ab")
    for role in KeyRole:
        found = data.find(other.key(role).id)
        assert found is None or KeyRole.ADMIN not in found[1], role
    assert data.find(KeyRing.load(tmp_path / "keys" / "admin.key").key(KeyRole.ADMIN).id)


def test_secrets_are_their_owner_s_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_system(system(Mode.X, standby="b"), out, "postgresql://u:secret@h/d", "source = []\n")
    secret = [path for path in out.rglob("*") if path.is_file() and path.suffix in {".key", ".salt", ".env", ".toml"}]
    assert len(secret) > 20
    assert {mode_of(path) for path in secret} == {0o600}
    assert mode_of(out) == mode_of(out / "keys") == mode_of(out / "hosts" / "a" / "keys") == 0o700
    shown = [path for path in out.rglob("*") if path.is_file() and path not in secret]
    assert not [path for path in shown if "secret@" in path.read_text()]


def test_second_run_changes_nothing(tmp_path: Path) -> None:
    assert write_system(system(Mode.X, standby="b"), tmp_path, "postgresql://u@h/d", None).written
    assert write_system(system(Mode.X, standby="b"), tmp_path, "postgresql://u@h/d", None) == ([], [])


def test_change_writes_what_it_concerns_and_keeps_keys(tmp_path: Path) -> None:
    write_system(system(Mode.X), tmp_path, None, None)
    keys = {path: path.read_bytes() for path in tmp_path.rglob("*.key")}
    changes = write_system(system(Mode.X, log_level="debug"), tmp_path, None, None)
    assert changes.written == [
        "hosts/a/etc/data.env",
        *(f"hosts/{h}/etc/{p}-{n}.env" for h, n in (("b", 1), ("c", 2)) for p in ("bridge", "websocket")),
    ]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.key")} == keys


def test_files_and_keys_that_are_needed_no_more_are_removed_and_those_of_others_stay(tmp_path: Path) -> None:
    write_system(system(Mode.X, servers=3), tmp_path, None, None)
    note = tmp_path / "hosts" / "b" / "etc" / "local.env"
    note.write_text("DIEM_LOG_LEVEL=debug\n")
    changes = write_system(system(Mode.X, servers=2, traffic=Traffic.OFF), tmp_path, None, None)
    assert [name for name in changes.removed if "etc" in name or "systemd" in name] == [
        "hosts/b/etc/bridge-3.env",
        "hosts/b/etc/websocket-3.env",
        "hosts/b/systemd/bridge-3.conf",
        "hosts/b/systemd/websocket-3.conf",
    ]
    assert "traffic.salt" not in keys_of(tmp_path, "b")
    assert note.exists()


def test_changed_common_key_is_copied_to_every_host_that_has_it(tmp_path: Path) -> None:
    write_system(system(Mode.X), tmp_path, None, None)
    feed = tmp_path / "keys" / "feed.key"
    feed.write_text(f"{feed.read_text()}{'n' * 32}\n")
    changes = write_system(system(Mode.X), tmp_path, None, None)
    assert changes.written == [f"hosts/{label}/keys/feed.key" for label in "abc"]
    assert (tmp_path / "hosts" / "c" / "keys" / "feed.key").read_text() == feed.read_text()
    feed.write_text("short\n")
    with pytest.raises(BadKeyFile):
        write_system(system(Mode.X), tmp_path, None, None)


def test_stand_by_signs_tokens_with_the_same_keys(tmp_path: Path) -> None:
    write_system(system(Mode.X, standby="b"), tmp_path, None, None)
    keys = [sorted((tmp_path / "hosts" / label / "keys" / "token-keys").glob("*.key")) for label in "ab"]
    assert [path.read_text() for path in keys[0]] == [path.read_text() for path in keys[1]]
    assert len(keys[0]) == 1
    assert not (tmp_path / "hosts" / "c" / "keys" / "token-keys").exists()


def test_host_with_nginx_alone_has_no_keys_and_no_state(tmp_path: Path) -> None:
    a = Host("a", "10.0.0.1", "a", frozenset({HostRole.DATA, HostRole.SERVERS}))
    b = Host("b", "10.0.0.2", "b", frozenset({HostRole.NGINX}))
    of = system(Mode.X, (a, b))
    write_system(of, tmp_path, None, None)
    assert needed_keys(of, of.hosts[1]) == []
    assert not keys_of(tmp_path, "b")


def test_nginx_knows_every_slot_by_the_address_of_its_host(tmp_path: Path) -> None:
    write_system(system(Mode.X, standby="b", max_servers=3), tmp_path, None, None)
    conf = (tmp_path / "hosts" / "a" / "etc" / "nginx.conf").read_text()
    for server in ("10.0.0.2:8101", "10.0.0.3:8102", "10.0.0.2:8103"):
        assert f"server {server} max_fails=0;" in conf
    for data in ("10.0.0.1:8080", "10.0.0.2:8080"):
        assert f"server {data} max_fails=1 fail_timeout=1s;" in conf
    assert "proxy_connect_timeout 300ms;" in conf
    assert 'ssl_certificate "/tls/c.pem";' in conf


def test_readme_has_the_order_of_start_and_of_upgrades(tmp_path: Path) -> None:
    write_system(system(Mode.Z_PROXY, standby="b", servers=2, max_servers=3), tmp_path, None, None)
    text = (tmp_path / "README.txt").read_text()
    assert text.index("1. a") < text.index("2. b")
    assert "   bridge-1, websocket-1, bridge-2, websocket-2, data-2, data, metadata, proxy-1\n" in text
    assert "/tls/c.pem and /tls/k.pem" in text


@pytest.mark.parametrize(
    ("mode", "order"),
    [
        (Mode.SINGLE, "data-2, data, websocket-1, websocket-2"),
        (Mode.X_BROADCAST, "data-2, data, broadcast, websocket-1, websocket-2, nginx"),
        (Mode.X, "bridge-1, websocket-1, bridge-2, websocket-2, data-2, data, nginx"),
        (Mode.XZ, "composite-1, composite-2, data-2, data, nginx"),
    ],
)
def test_upgrades_replace_readers_of_kafka_before_writers_and_a_stand_by_first(mode: Mode, order: str) -> None:
    assert f"   {order}\n" in render_readme(system(mode, standby="b"))


def test_spare_services_are_named_with_their_hosts_and_servers_before_their_bridges() -> None:
    text = render_readme(system(Mode.Z_PROXY, servers=2, max_servers=4))
    assert "   b  diem@websocket-3.service diem@bridge-3.service\n" in text
    assert "   c  diem@websocket-4.service diem@bridge-4.service\n" in text


def test_description_has_the_address_of_every_process_and_says_which_are_spare(tmp_path: Path) -> None:
    write_system(system(Mode.X, servers=2, max_servers=4), tmp_path, None, None)
    described = json.loads((tmp_path / "system.json").read_text())
    found = {each["name"]: (each["host"], each["urls"]["internal"]) for each in described["processes"]}
    assert found["websocket-2"] == ("c", "http://10.0.0.3:9102")
    assert found["nginx"] == ("a", None)
    assert [each["name"] for each in described["processes"] if each.get("spare")] == [
        *("bridge-3", "websocket-3", "bridge-4", "websocket-4"),
    ]
