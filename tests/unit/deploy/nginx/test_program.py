import stat
from pathlib import Path

import pytest

from deploy.nginx import program
from deploy.nginx.program import NoNginx
from diem.errors import ConfigurationError


def test_missing_nginx_is_one_line_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(program, "PLACES", ())
    with pytest.raises(NoNginx) as caught:
        program.find()
    assert isinstance(caught.value, ConfigurationError)
    assert str(caught.value) == (
        "nginx is not installed, and this mode needs it: install the package nginx "
        "(Debian, Ubuntu: apt install nginx), or use --mode single"
    )


def test_nginx_is_found_where_only_root_has_it_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nginx").write_text("#!/bin/sh\n")
    (tmp_path / "nginx").chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(program, "PLACES", (str(tmp_path),))
    assert program.find() == str(tmp_path / "nginx")


def test_configuration_is_in_a_directory_of_its_owner_alone(tmp_path: Path) -> None:
    program.write(tmp_path / "nginx", "events {}\n")
    assert stat.S_IMODE((tmp_path / "nginx").stat().st_mode) == 0o700
    assert program.config_file(tmp_path / "nginx").read_text() == "events {}\n"
    program.write(tmp_path / "nginx", "other\n")
    assert program.config_file(tmp_path / "nginx").read_text() == "other\n"


def test_command_line_names_only_files_of_that_directory(tmp_path: Path) -> None:
    assert program.argv("/n", tmp_path) == ("/n", "-p", str(tmp_path), "-c", f"{tmp_path}/nginx.conf", "-e", "stderr")


def test_limit_on_open_files_is_bounded() -> None:
    assert 64 < program.open_files() <= program.MAX_OPEN_FILES
