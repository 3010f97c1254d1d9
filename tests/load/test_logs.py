from pathlib import Path

from tests.load.logs import tracebacks


def test_exceptions_in_logs_are_found_with_their_process(tmp_path: Path) -> None:
    (tmp_path / "websocket-3.log").write_text(
        '{"event":"ready","level":"info"}\n'
        '{"event":"Fatal error","level":"error","exception":"Traceback\\n  File x\\nRuntimeError: no"}\n',
        encoding="utf-8",
    )
    (tmp_path / "composite-1.log").write_text("Traceback (most recent call last):\n", encoding="utf-8")
    (tmp_path / "kafka-1.log").write_text("Traceback (most recent call last):\n", encoding="utf-8")
    assert tracebacks(tmp_path) == [
        "composite-1: Traceback (most recent call last):",
        "websocket-3: RuntimeError: no",
    ]
