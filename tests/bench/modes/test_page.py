from typing import Any

from tests.bench.modes.page import about, page

ROW: dict[str, Any] = {
    "group": "R1-x-2",
    "regime": "R1",
    "configuration": "x",
    "servers": 2,
    "clones": 1,
    "rounds": 1,
    "fitted": False,
    "control": False,
    "planned": False,
    "fan_out": None,
    "cpu_ms": {"websocket": 40.0},
    "compiling_ms": 7.0,
    "predicted_cpu_error_ms": {"websocket": 6.0},
    "beyond": ["websocket"],
    "predicted_cpu_ms": {"websocket": 50.0},
    "cpu_errors": {"websocket": 25.0},
    "connections": 300.0,
    "predicted_connections": 300.0,
    "frames_per_s": 4500.0,
    "predicted_frames_per_s": 4510.0,
    "waste": 0.5,
    "memory_mib": 100.0,
    "predicted_memory_mib": 110.0,
    "delay_ms": {"p50": 1.0, "p99": 2.0},
    "unclean": ["<Behind>"],
}
RESULT: dict[str, Any] = {
    "size": "quick",
    "began": "2026-01-01",
    "ended": "2026-01-02",
    "constants": {"delivery_us": [10.0, 1.0]},
    "constants_source": "built in",
    "failures": {},
    "runs": [ROW],
    "control": {"configuration": "x"},
    "against_x": [],
    "plan_in_r1": {"hashed": 3.8, "planned": 3.3},
    "goals": [{"name": "CPU", "goal": 20, "unit": "%", "measured": 25.0, "reached": False}],
}


def test_plan_is_beside_the_hash_that_it_replaces() -> None:
    hashed = {**ROW, "connections": 1100.0}
    planned = {**ROW, "planned": True, "fan_out": {"hashed": 3.7, "planned": 1.9}, "cpu_ms": {"websocket": 30.0}}
    found = page(
        {**RESULT, **about([]), "runs": [hashed, planned], "control": {"configuration": "x", "differences": {}}}
        | {"knee": None, "peers": {"measured": [], "absent": {}, "single": None}},
        "",
    )
    for cell in ("3.70", "1.90", "1,100", "-25.0", "+0.0"):
        assert f"<td>{cell}</td>" in found
    assert "x, 2, planned" in found


def test_report_is_one_file_that_says_what_it_is_worth() -> None:
    control = {"configuration": "x", "differences": {"nginx": 4.0}}
    knee: dict[str, Any] = {"predicted": 9000.0, "measured": None, "factor": 7.4, "steps": []}
    ws = {"name": "ws", "cpu_ms": 40.0, "frames_per_s": 4000.0, "expected_frames_per_s": 4001.0, "us_per_frame": 10.0}
    single = {"server": 8.0, "server_and_data_service": 20.0}
    peers = {"measured": [ws], "absent": {"nchan": "not named"}, "single": single}
    found = page(
        {**RESULT, **about(["--fresh"]), "control": control, "knee": knee, "peers": peers}, '{"run":"R1-x-2-1"}\n'
    )
    assert "(quick: its figures are not to be compared with others)" in found
    assert "25 (missed)" in found
    assert "<svg" in found
    assert "python -m tests.bench.modes --fresh" in found
    assert "nginx 4 %" in found
    assert "Mode single: 8.0 us a frame" in found
    assert "Not measured: nchan: not named." in found
    assert "Measured: not reached" in found
    assert "&lt;Behind&gt;" in found
    assert "<Behind>" not in found
    assert "{&quot;run&quot;:&quot;R1-x-2-1&quot;}" in found
    assert "+25 (15)" in found
    assert "1 of 1 predictions are more than 20 % off" in found
    assert "measurement: R1: x, 2: websocket." in found
    assert "3.80 servers by hash and would need 3.30" in found
    assert "<script" not in found
    assert "http:" not in found.replace('xmlns="http://www.w3.org/2000/svg"', "")
