import re
from pathlib import Path

import pytest

from deploy.nginx.config import BULK_BYTES, MAX_CONNECTIONS, NginxPlan, connections, render

DIRECTORY = Path("/state/nginx")


def text(directory: Path = DIRECTORY, **differences: int) -> str:
    return render(NginxPlan(directory, 8000, 8080, (8101, 8102, 8103), **differences))


def block(name: str, of: str) -> str:
    """Return the content of a block that holds no others."""
    (found,) = re.findall(rf"^ *{re.escape(name)} \{{\n([^{{}}]*)\}}", of, re.MULTILINE)
    return str(found)


def directives(name: str, of: str) -> list[str]:
    return re.findall(rf"^ *{name} (.*);$", of, re.MULTILINE)


def test_every_slot_is_a_server_that_is_never_marked_as_failed() -> None:
    upstream = block("upstream servers", text())
    assert directives("server", upstream) == [f"127.0.0.1:{port} max_fails=0" for port in (8101, 8102, 8103)]
    assert "least_conn;" in upstream
    assert directives("zone", upstream) == ["servers 256k"]


def test_listener_is_on_loopback() -> None:
    assert directives("listen", text()) == ["127.0.0.1:8000"]


def test_upgrade_is_passed_on_to_servers_and_nowhere_else() -> None:
    whole = text()
    assert {"Upgrade $http_upgrade", "Connection $connection_upgrade"} <= set(
        directives("proxy_set_header", block("location = /ws", whole))
    )
    for path in ("= /v1/data", "/"):
        assert {'Upgrade ""', 'Connection ""'} <= set(directives("proxy_set_header", block(f"location {path}", whole)))
    assert whole.count("$http_upgrade") == 2


@pytest.mark.parametrize("path", ["= /ws", "= /v1/data", "/"])
def test_what_clients_say_of_their_address_is_overwritten_and_the_host_is_kept(path: str) -> None:
    headers = directives("proxy_set_header", block(f"location {path}", text()))
    assert {"Host $http_host", "X-Forwarded-For $remote_addr", "X-Forwarded-Proto $scheme"} <= set(headers)


def test_limits_of_one_address_can_be_set_and_are_told_apart_from_a_full_server() -> None:
    whole = text(per_address=7, connects_per_s=3)
    edge = block("location = /ws", whole)
    assert directives("limit_conn", edge) == ["clients 7"]
    assert directives("limit_req", edge) == ["zone=connects burst=6 nodelay"]
    assert directives("limit_req_zone", whole) == ["$binary_remote_addr zone=connects:10m rate=3r/s"]
    assert directives("limit_conn_status", whole) == directives("limit_req_status", whole) == ["429"]


def test_all_slots_are_tried_within_a_bounded_time() -> None:
    edge = block("location = /ws", text())
    assert directives("proxy_next_upstream", edge) == ["error timeout http_503"]
    assert directives("proxy_next_upstream_tries", edge) == ["0"]
    assert directives("proxy_next_upstream_timeout", edge) == ["8s"]


def test_silent_connection_outlives_two_pings() -> None:
    assert directives("proxy_read_timeout", block("location = /ws", text())) == ["40s"]


def test_bodies_fit_into_memory_and_only_the_bulk_write_takes_a_large_one() -> None:
    whole = text()
    for path in ("= /v1/data", "/"):
        location = block(f"location {path}", whole)
        assert directives("client_max_body_size", location) == directives("client_body_buffer_size", location)
        assert directives("proxy_max_temp_file_size", location) == ["0"]
    sizes = [int(size) for size in directives("client_max_body_size", whole) if size.isdigit()]
    assert sizes[0] > BULK_BYTES > 4 * sizes[1]


def test_nothing_is_written_outside_of_its_directory() -> None:
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


def test_map_has_no_regular_expression() -> None:
    assert "~" not in text()


@pytest.mark.parametrize(("workers", "rendered"), [(0, "1"), (3, "3"), (64, "4")])
def test_workers_are_bounded(workers: int, rendered: str) -> None:
    assert directives("worker_processes", text(workers=workers)) == [rendered]


def test_connections_leave_room_under_the_limit_on_open_files() -> None:
    assert connections(1024) == 960
    assert connections(10**9) == MAX_CONNECTIONS
    whole = text(open_files=1024)
    assert directives("worker_connections", whole) == ["960"]
    assert directives("worker_rlimit_nofile", whole) == ["1024"]
