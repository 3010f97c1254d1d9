"""Options that ``diem up`` and ``diem config --hosts`` share, and the diem.toml that they read."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.cli.mode_options import config_file, read_config
from deploy.cli.up import up
from services.data.sources.config import BadConfig
from tools.commands.config import config

ELSEWHERE = {"state_dir"}
"""The state directory of ``diem config`` is one of the hosts."""


def declared(command: Callable[..., Any]) -> dict[str, Any]:
    """Return the declaration of each option of a command."""
    parameters = inspect.signature(command).parameters.values()
    return {
        each.name: each.annotation.__metadata__[0] for each in parameters if hasattr(each.annotation, "__metadata__")
    }


def test_options_of_both_commands_have_the_same_variables_panels_and_ranges() -> None:
    here, on_hosts = declared(up), declared(config)
    both = (here.keys() & on_hosts.keys()) - ELSEWHERE
    assert {"servers", "proxy", "origin", "traffic", "log_level", "drain_seconds"} < both
    for name in both:
        first, second = here[name], on_hosts[name]
        facts = [(each.param_decls, each.envvar, each.rich_help_panel, each.min, each.max) for each in (first, second)]
        assert facts[0] == facts[1], name


def test_the_file_is_the_one_that_diem_up_would_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DIEM_DATA_CONFIG", raising=False)
    assert config_file(None) is None
    Path("diem.toml").touch()
    assert config_file(None) == Path("diem.toml")
    monkeypatch.setenv("DIEM_DATA_CONFIG", "elsewhere.toml")
    assert config_file(None) == Path("elsewhere.toml")
    monkeypatch.setenv("DIEM_CONFIG", "short.toml")
    assert config_file(None) == Path("elsewhere.toml")
    monkeypatch.setenv("DIEM_DATA_CONFIG", "")
    assert config_file(None) == Path("short.toml")
    assert config_file(Path("given.toml")) == Path("given.toml")


def test_a_file_is_read_without_its_byte_order_mark_and_only_without_faults(tmp_path: Path) -> None:
    file = tmp_path / "diem.toml"
    file.write_bytes(b"\xef\xbb\xbfsource = []\n")
    assert read_config(file) == "source = []\n"
    file.write_text("sourec = []\n")
    with pytest.raises(BadConfig, match="sourec"):
        read_config(file)
