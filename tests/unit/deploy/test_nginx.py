import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from deploy import nginx
from deploy.nginx import BODY_BYTES, MAX_CONNECTIONS, NginxPlan, NoNginx, connections, render
from diem.errors import ConfigurationError
from diem.process.tls import HSTS

DIRECTORY = Path("/state/nginx")
SLOTS = tuple(f"127.0.0.1:{port}" for port in (8101, 8102, 8103))


def text(directory: Path = DIRECTORY, **differences: Any) -> str:
    given = {"data": ("127.0.0.1:8080",), "slots": SLOTS} | differences
    return render(NginxPlan(directory, 8000, **given))


def block(name: str, of: str) -> str:
    """Return the content of a block without nested blocks."""
    (found,) = re.findall(rf"^ *{re.escape(name)} \{{\n([^{{}}]*)\}}", of, re.MULTILINE)
    return str(found)


def directives(name: str, of: str) -> list[str]:
    return re.findall(rf"^ *{name} (.*);$", of, re.MULTILINE)


def test_every_slot_is_a_server_of_its_own_weight_that_is_marked_when_it_fails() -> None:
    upstream = block("upstream servers", text())
    assert directives("server", upstream) == [
        f"{slot} weight={10_000 + number} max_fails=1 fail_timeout=5s" for number, slot in enumerate(SLOTS)
    ]
    assert "least_conn;" in upstream
    assert directives("zone", upstream) == ["servers 256k"]


def test_where_all_are_marked_clients_are_sent_to_any() -> None:
    whole = text()
    upstream, last = block("upstream all_servers", whole), block("location @all", whole)
    assert directives("server", upstream) == [f"{slot} max_fails=0" for slot in SLOTS]
    assert "least_conn;" in upstream
    assert directives("proxy_pass", last) == ["http://all_servers"]
    # What a server answers that takes no client is passed on.
    assert directives("proxy_next_upstream", last) == ["error timeout"]
    assert "502 = @all" in directives("error_page", block("location = /ws", whole))
    assert directives("error_page", block("location @unmarked", whole)) == ["502 = @all"]


def test_stand_by_is_passed_over_while_it_refuses() -> None:
    one, two = "10.0.0.1:8080", "10.0.0.2:8080"
    assert directives("server", block("upstream data", text(data=(one,)))) == [f"{one} max_fails=0"]
    both = directives("server", block("upstream data", text(data=(one, two))))
    assert both == [f"{each} max_fails=1 fail_timeout=1s" for each in (one, two)]


def test_listener_is_on_loopback() -> None:
    assert directives("listen", text()) == ["127.0.0.1:8000"]
    both = ["127.0.0.1:8000", "[::1]:8000"]
    assert directives("listen", text(both_loopbacks=True)) == both
    assert directives("listen", text(reserved=True)) == ["127.0.0.1:8000 reuseport"]


def test_certificate_brings_tls_1_2_and_1_3_with_hsts_and_keeps_clients_over_a_reload() -> None:
    whole = text(listen="0.0.0.0", certificate=Path('/a "b"/c.pem'), key=Path("/k.pem"))
    assert directives("listen", whole) == ["0.0.0.0:8000 ssl"]
    assert directives("ssl_certificate", whole) == ['"/a \\"b\\"/c.pem"']
    assert directives("ssl_certificate_key", whole) == ['"/k.pem"']
    assert directives("ssl_protocols", whole) == ["TLSv1.2 TLSv1.3"]
    # Of the server, and of the refusals, which have fields of their own.
    assert directives("add_header", whole).count(f'Strict-Transport-Security "{HSTS}" always') == 2
    assert directives("worker_shutdown_timeout", whole) == ["12h"]
    assert directives("ssl_certificate_key", text(certificate=Path("/c.pem"))) == ['"/c.pem"']
    assert "ssl" not in text()


@pytest.mark.parametrize(
    ("listen", "rendered"),
    [("::", "[::]:8000 ipv6only=off"), ("2001:db8::1", "[2001:db8::1]:8000"), ("192.0.2.1", "192.0.2.1:8000")],
)
def test_listener_is_on_the_address_given(listen: str, rendered: str) -> None:
    assert directives("listen", text(listen=listen)) == [rendered]


def test_upgrade_is_forwarded_to_servers_only() -> None:
    whole = text()
    assert {"Upgrade $http_upgrade", "Connection $connection_upgrade"} <= set(
        directives("proxy_set_header", block("location = /ws", whole))
    )
    for path in ("= /v1/data", "/"):
        assert {'Upgrade ""', 'Connection ""'} <= set(directives("proxy_set_header", block(f"location {path}", whole)))
    assert whole.count("$http_upgrade") == 4
    assert "Upgrade" not in block("location = /ws/probe", whole)


@pytest.mark.parametrize("path", ["= /ws", "= /v1/data", "/"])
def test_forwarded_addresses_are_overwritten_and_the_host_is_kept(path: str) -> None:
    headers = directives("proxy_set_header", block(f"location {path}", text()))
    assert {"Host $http_host", "X-Forwarded-For $remote_addr", "X-Forwarded-Proto $scheme"} <= set(headers)


def test_limits_of_an_address_are_configurable_and_have_a_status_of_their_own() -> None:
    whole = text(per_address=7, connects_per_s=3)
    edge = block("location = /ws", whole)
    assert directives("limit_conn", edge) == ["clients 7"]
    for path, reads in (("= /v1/data", 7), ("/v1/data/", 42), ("/", 7)):
        assert directives("limit_conn", block(f"location {path}", whole)) == [f"readers {reads}"]
    zones = ["$network zone=clients:10m", "$network zone=readers:10m"]
    assert directives("limit_conn_zone", whole) == zones
    assert directives("limit_req", edge) == ["zone=connects burst=6 nodelay"]
    assert directives("limit_req_zone", whole) == ["$network zone=connects:10m rate=3r/s"]
    assert directives("limit_conn_status", whole) == directives("limit_req_status", whole) == ["429"]


def test_clients_of_this_machine_have_no_limits_where_these_are_off() -> None:
    whole = text(limit_loopback=False, cache=Path("/cache"))
    zones = ["$limited_address zone=clients:10m", "$limited_address zone=readers:10m"]
    assert directives("limit_conn_zone", whole) == zones
    assert directives("limit_req_zone", whole)[0] == "$limited_address zone=connects:10m rate=50r/s"
    assert directives('""', block("map $http_authorization $keyless", whole)) == ["$limited_address"]
    here = block("geo $here", whole)
    assert directives("127.0.0.0/8", here) == directives("::1/128", here) == ["here"]
    assert directives("default", here) == ["elsewhere"]
    assert "$limited_address" not in text()


def test_all_slots_are_tried_within_a_bounded_time() -> None:
    edge = block("location = /ws", text())
    assert directives("proxy_next_upstream", edge) == ["error timeout http_503"]
    assert directives("proxy_next_upstream_tries", edge) == ["0"]
    assert directives("proxy_next_upstream_timeout", edge) == ["500ms"]


def test_a_probe_finds_a_server_that_answers_before_a_client_is_sent_there() -> None:
    whole = text()
    edge, probe = block("location = /ws", whole), block("location = /ws/probe", whole)
    assert directives("auth_request", edge) == ["/ws/probe"]
    assert directives("error_page", edge) == ["429 @refused", "500 504 = @unmarked", "502 = @all"]
    assert directives("recursive_error_pages", whole) == ["on"]
    # The marks that it makes are those of the group in which the client's server is chosen.
    assert directives("proxy_pass", probe) == ["http://servers/livez"]
    assert directives("proxy_pass", edge) == directives("proxy_pass", block("location @unmarked", whole))
    assert "internal;" in probe
    assert directives("proxy_pass_request_headers", probe) == ["off"]
    assert directives("proxy_connect_timeout", probe) == directives("proxy_connect_timeout", edge) == ["300ms"]
    assert directives("proxy_read_timeout", probe) == ["2s"]
    assert directives("proxy_next_upstream", probe) == ["error timeout"]
    assert directives("proxy_next_upstream_tries", probe) == ["0"]
    # No mark of a probe ends before the last probe that follows it.
    assert nginx.PROBES_MS / 1000 < nginx.FAILED_S


def test_silent_connection_outlives_two_pings() -> None:
    assert directives("proxy_read_timeout", block("location = /ws", text())) == ["9s"]


def test_bodies_are_passed_on_while_they_arrive_and_those_of_data_are_bounded_by_the_data_service() -> None:
    whole = text()
    for path, size in {"= /v1/data": 0, "/v1/data/": 0, "/": BODY_BYTES}.items():
        location = block(f"location {path}", whole)
        assert directives("proxy_request_buffering", location) == ["off"]
        assert directives("client_body_buffer_size", location) == ["16384"]
        assert directives("proxy_max_temp_file_size", location) == ["0"]
        assert directives("client_max_body_size", location) == [str(size)]


def test_all_written_files_are_in_its_directory() -> None:
    whole = text(Path('/a "state"/nginx'))
    paths = re.findall(r"(?:_temp_path|pid) (.*);", whole)
    assert len(paths) == 6
    assert all(path.startswith('"/a \\"state\\"/nginx/') for path in paths)
    assert directives("access_log", whole) == ["off"]
    assert directives("error_log", whole) == ["stderr warn", "stderr crit"]


def test_header_of_a_client_is_bounded_in_size_and_time() -> None:
    whole = text()
    assert directives("large_client_header_buffers", whole) == ["4 8k"]
    for name in ("client_header_timeout", "client_body_timeout", "send_timeout"):
        assert directives(name, whole) == ["10s"]
    assert directives("server_tokens", whole) == ["off"]
    assert directives("reset_timedout_connection", whole) == ["on"]
    assert directives("worker_shutdown_timeout", whole) == ["60s"]


def test_only_named_versions_are_cached_and_only_where_there_is_a_cache() -> None:
    cached = text(cache=Path('/a "cache"'), certificate=Path("/c.pem"))
    (path,) = directives("proxy_cache_path", cached)
    assert path.startswith('"/a \\"cache\\"" ')
    assert {"inactive=10m", "max_size=67108864"} <= set(path.split())
    location = block("location /v1/data/", cached)
    assert directives("proxy_cache", cached) == directives("proxy_cache", location) == ["$data_cache"]
    assert directives("proxy_cache_key", location) == ['"$request_uri"']
    assert directives("proxy_cache_lock", location) == ["on"]
    assert directives("limit_req_zone", cached)[1:] == ["$keyless zone=reads:10m rate=1000r/s"]
    assert directives("limit_req", location) == ["zone=reads burst=2000 nodelay"]
    # Beside an own field a location does not have those of the server.
    assert "add_header" not in location
    uncached = block("location /v1/data/", text(certificate=Path("/c.pem")))
    assert set(uncached.splitlines()) <= set(location.splitlines())
    assert "cache" not in text()


def test_cache_is_made_anew_for_each_run(tmp_path: Path) -> None:
    nginx.remove_cache(tmp_path)
    made = nginx.new_cache(tmp_path)
    # The workers of root are another user, who cannot enter a private directory.
    assert (made.parent == tmp_path) == (os.geteuid() != 0)
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    (made / "old").touch()
    nginx.remove_cache(tmp_path)
    assert not made.exists()
    assert list(tmp_path.iterdir()) == []


def test_names_of_the_page_alone_are_answered_from_the_cache_each_in_one_spelling() -> None:
    found = block("map $http_host $cache_of_host", text(cache=DIRECTORY, hosts=("localhost", "app.example")))
    assert directives("default", found) == ["off"]
    assert found.count(" $cache_of_version;") == 4
    for name in ("localhost", "localhost:8000", "app.example", "app.example:8000"):
        assert directives(f'"{name}"', found) == ["$cache_of_version"]


def test_no_map_has_a_regular_expression_nor_any_has_numbered_captures() -> None:
    whole = text(cache=DIRECTORY)
    assert "~" not in "".join(re.findall(r"map [^}]*}", whole))
    assert "rewrite" not in whole
    assert not re.search(r"\$\d", whole)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", None),
        ("::1", None),
        ("::ffff:192.0.2.1", None),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2:"),
        ("2001:db8:1:2::6", "2001:db8:1:2:"),
        ("2001:db8:1::6", "2001:db8:1::"),
        ("2001:db8::3:4:5:6", "2001:db8::"),
        ("2001:db8::6", "2001:db8::"),
        ("2001::6", "2001::"),
    ],
)
def test_networks_of_ipv6_are_told_apart_by_their_first_64_bits(address: str, network: str | None) -> None:
    (pattern,) = re.findall(r'if \(\$remote_addr ~ "(.*)"\)', text())
    found = re.match(pattern.replace("?<", "?P<"), address)
    assert (None if found is None else found["prefix"]) == network


@pytest.mark.parametrize(("workers", "rendered"), [(0, "1"), (3, "3"), (64, "4")])
def test_workers_are_bounded(workers: int, rendered: str) -> None:
    assert directives("worker_processes", text(workers=workers)) == [rendered]


def test_connections_leave_room_under_the_limit_on_open_files() -> None:
    assert connections(1024) == 960
    assert connections(10**9) == MAX_CONNECTIONS
    whole = text(open_files=1024)
    assert directives("worker_connections", whole) == ["960"]
    assert directives("worker_rlimit_nofile", whole) == ["1024"]


def test_missing_nginx_is_a_one_line_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nginx, "PLACES", ())
    with pytest.raises(NoNginx) as caught:
        nginx.find()
    assert isinstance(caught.value, ConfigurationError)
    assert str(caught.value) == (
        "nginx is not installed, and this mode needs it: install the package nginx "
        "(Debian, Ubuntu: apt install nginx), or use --mode single"
    )


def test_nginx_is_found_in_directories_of_roots_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nginx").write_text("#!/bin/sh\n")
    (tmp_path / "nginx").chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(nginx, "PLACES", (str(tmp_path),))
    assert nginx.find() == str(tmp_path / "nginx")


def test_configuration_is_in_a_private_directory(tmp_path: Path) -> None:
    nginx.write(tmp_path / "nginx", "events {}\n")
    assert stat.S_IMODE((tmp_path / "nginx").stat().st_mode) == 0o700
    assert nginx.config_file(tmp_path / "nginx").read_text() == "events {}\n"
    nginx.write(tmp_path / "nginx", "other\n")
    assert nginx.config_file(tmp_path / "nginx").read_text() == "other\n"


def test_command_line_names_only_files_of_that_directory(tmp_path: Path) -> None:
    assert nginx.argv("/n", tmp_path) == ("/n", "-p", str(tmp_path), "-c", f"{tmp_path}/nginx.conf", "-e", "stderr")


def test_limit_on_open_files_is_bounded() -> None:
    assert 64 < nginx.open_files() <= nginx.MAX_OPEN_FILES
