import os
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest
from pydantic import Field, SecretStr, ValidationError

from diem.process import settings
from diem.process.settings import BadSettings, ProcessSettings, by_process, load, reference, short_variables


class Settings(ProcessSettings):
    process: ClassVar[str] = "data"

    port: int = Field(default=8080, ge=0, le=65535, description="Public port.")
    origins: tuple[str, ...] = Field(default=(), description="Extra origins.")
    password: SecretStr | None = Field(default=None, min_length=4, description="A secret.")
    limit: int | None = Field(default=None, description="A limit.")


class Servers(ProcessSettings):
    process: ClassVar[str] = "data"

    servers: list[dict[str, int]] = Field(default=[], description="Servers.")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("DIEM_")]:
        monkeypatch.delenv(name)


def failure(model: type[ProcessSettings] = Settings) -> tuple[str, ...]:
    with pytest.raises(BadSettings) as caught:
        load(model)
    return caught.value.lines


def test_shared_and_own_fields_come_from_their_prefixes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_STATE_DIR", "/var/lib/diem")
    monkeypatch.setenv("DIEM_SUPERVISED", "1")
    monkeypatch.setenv("DIEM_DATA_PORT", "1234")
    monkeypatch.setenv("DIEM_DATA_ORIGINS", '["https://a.example"]')
    settings = Settings.load()
    assert settings.state_dir == Path("/var/lib/diem")
    assert settings.supervised
    assert settings.port == 1234
    assert settings.origins == ("https://a.example",)


def test_key_file_is_in_the_state_directory_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_STATE_DIR", "/state")
    assert load(Settings).internal_key_file == Path("/state/internal.key")
    monkeypatch.setenv("DIEM_INTERNAL_KEY_FILE", "/keys/k")
    assert load(Settings).internal_key_file == Path("/keys/k")


def test_settings_are_frozen() -> None:
    settings = load(Settings)
    with pytest.raises(ValidationError, match="frozen"):
        settings.port = 1


def test_code_constructs_settings_by_field_names() -> None:
    assert Settings(state_dir=Path("/x"), port=0).state_dir == Path("/x")


def test_empty_variable_counts_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_DATA_PORT", "")
    assert load(Settings).port == 8080


def test_unknown_variables_and_wrong_values_are_reported_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_DATA_PROT", "8081")
    monkeypatch.setenv("DIEM_DATA_PORT", "many")
    monkeypatch.setenv("DIEM_DRAIN_SECONDS", "-1")
    with pytest.raises(BadSettings) as caught:
        load(Settings)
    assert [line.partition(":")[0] for line in caught.value.lines] == [
        "DIEM_DATA_PROT",
        "DIEM_DRAIN_SECONDS",
        "DIEM_DATA_PORT",
    ]


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("DIEM_DATA_PROT", "1", r"DIEM_DATA_PROT: no such setting \(did you mean `DIEM_DATA_PORT`.*"),
        ("DIEM_XYZZY", "1", "DIEM_XYZZY: no such setting"),
        ("DIEM_DATA_PORT_FILE", "/p", "DIEM_DATA_PORT_FILE: no such setting.*"),
        ("DIEM_DATA_PORT", "http", r"DIEM_DATA_PORT: input should be a valid integer.*\(is 'http'\)"),
        ("DIEM_LOG_LEVEL", "loud", "DIEM_LOG_LEVEL: input should be 'debug', 'info'.*"),
        ("DIEM_DATA_ORIGINS", '["unfinished', r"DIEM_DATA_ORIGINS: input should be JSON \(is '\[\"unfinished'\)"),
        ("DIEM_DATA_ORIGINS", '["a", 1]', r"DIEM_DATA_ORIGINS\[1\]: input should be a valid string.*"),
    ],
    ids=["near match", "unknown", "file of no secret", "own", "shared", "list that is no JSON", "element of a list"],
)
def test_bad_variable_is_one_line_that_names_it(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, line: str
) -> None:
    monkeypatch.setenv(variable, value)
    (found,) = failure()
    assert re.fullmatch(line, found)


def test_variables_of_other_processes_are_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_WEBSOCKET_PORT", "1")
    monkeypatch.setenv("DIEM_BROADCAST_ANYTHING", "1")
    assert load(Settings).port == 8080


def test_every_fault_has_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_DATA_PORT", "-1")
    monkeypatch.setenv("DIEM_TIME_FACTOR", "0")
    assert len(failure()) == 2


@pytest.mark.parametrize(
    "value",
    ["https://a.example,http://localhost:5173", " https://a.example , http://localhost:5173,"],
)
def test_list_may_be_plain_texts_with_commas(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("DIEM_DATA_ORIGINS", value)
    assert load(Settings).origins == ("https://a.example", "http://localhost:5173")


def test_list_of_mappings_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_DATA_SERVERS", "8101,8102")
    assert failure(Servers) == ("DIEM_DATA_SERVERS: input should be JSON (is '8101,8102')",)


def test_secret_is_never_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_DATA_PASSWORD", "abc")
    (line,) = failure()
    assert line.startswith("DIEM_DATA_PASSWORD: ")
    assert "abc" not in line


def test_service_links_of_kubernetes_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_DATA_PORT", "tcp://10.96.0.7:8080")
    monkeypatch.setenv("DIEM_DATA_SERVICE_HOST", "10.96.0.7")
    monkeypatch.setenv("DIEM_PORT_80_TCP_PROTO", "tcp")
    assert load(Settings).port == 8080


def test_a_misspelt_setting_is_an_error_beside_service_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_DATA_SERVICE_HOST", "10.96.0.7")
    monkeypatch.setenv("DIEM_DATA_SERVICE_HOSTS", "10.96.0.7")
    assert [line.partition(":")[0] for line in failure()] == ["DIEM_DATA_SERVICE_HOSTS"]


def secret_file(path: Path, content: str, mode: int = 0o600) -> Path:
    path.write_text(content)
    path.chmod(mode)
    return path


def test_a_secret_may_be_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DIEM_DATA_PASSWORD_FILE", str(secret_file(tmp_path / "p", "secret\n", 0o440)))
    given = load(Settings).password
    assert given is not None
    assert given.get_secret_value() == "secret"


def test_a_secret_in_a_variable_and_a_file_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DIEM_DATA_PASSWORD", "secret")
    monkeypatch.setenv("DIEM_DATA_PASSWORD_FILE", str(tmp_path / "p"))
    assert failure() == ("DIEM_DATA_PASSWORD_FILE: DIEM_DATA_PASSWORD is set, too: only one of them may be",)


def test_faults_of_a_secret_file_are_one_line_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DIEM_DATA_PASSWORD_FILE", str(tmp_path / "p"))
    assert failure() == (f"DIEM_DATA_PASSWORD_FILE: {tmp_path / 'p'}: No such file or directory",)
    secret_file(tmp_path / "p", "secret", 0o644)
    (line,) = failure()
    assert line.startswith(f"DIEM_DATA_PASSWORD_FILE: {tmp_path / 'p'}: others may read it: run chmod 600")
    secret_file(tmp_path / "p", "abc")
    (line,) = failure()
    assert line.startswith("DIEM_DATA_PASSWORD_FILE: ")
    assert "abc" not in line


def test_reference_lists_variable_type_default_and_description() -> None:
    rows = {row.variable: row for row in reference(Settings)}
    assert rows["DIEM_PORT"] == ("DIEM_PORT", "integer", "8080", "Public port.")
    assert rows["DIEM_ORIGINS"].type == "list a,b"
    assert rows["DIEM_ORIGINS"].default == "[]"
    assert rows["DIEM_PASSWORD"].type == "secret | unset"
    assert rows["DIEM_LIMIT"].default == "unset"
    assert rows["DIEM_INTERNAL_KEY_FILE"].default == "<state dir>/internal.key"
    assert rows["DIEM_LOG_LEVEL"].type == "debug | info | warning | error"
    assert rows["DIEM_SUPERVISED"].default == "false"
    assert all(row.description for row in rows.values())


def test_reference_can_leave_the_shared_settings_out() -> None:
    assert [row.variable for row in reference(Settings, shared=False)] == [
        "DIEM_PORT",
        "DIEM_ORIGINS",
        "DIEM_PASSWORD",
        "DIEM_PASSWORD_FILE",
        "DIEM_LIMIT",
    ]


def test_variable_of_the_process_has_priority_over_the_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_PORT", "8081")
    assert Settings.load().port == 8081
    monkeypatch.setenv("DIEM_DATA_PORT", "8082")
    assert Settings.load().port == 8082


def test_short_variable_of_another_process_is_known_and_a_misspelt_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_FEED_URL", "ws://127.0.0.1:9080/feed")
    assert Settings.load().port == 8080
    monkeypatch.setenv("DIEM_FEED_URLS", "ws://127.0.0.1:9080/feed")
    (line,) = failure()
    assert line.startswith("DIEM_FEED_URLS: no such setting")


def test_short_variables_are_those_of_every_process_that_has_them() -> None:
    found = by_process({"diem_port": "1", "DIEM_WEBSOCKET_PORT": "2", "DIEM_LOG_LEVEL": "debug", "DIEM_PROXY_HOST": ""})
    assert found["DIEM_WEBSOCKET_PORT"] == "2"
    assert found["DIEM_PROXY_PORT"] == found["DIEM_DATA_PORT"] == found["DIEM_PORT"] == "1"
    assert "DIEM_BRIDGE_PORT" not in found
    assert "DIEM_DATA_LOG_LEVEL" not in found


def test_settings_of_processes_are_imported_only_for_short_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []

    def importing(name: str) -> ModuleType:
        imported.append(name)
        return import_module(name)

    monkeypatch.setattr(settings, "import_module", importing)
    environ = {
        "HOME": "/",
        "DIEM_LOG_LEVEL": "debug",
        "DIEM_DATA_PORT": "1",
        "DIEM_KAFKA_REPLICATION": "3",
        "DIEM_PORT": "",
    }
    assert by_process(environ) == {name: value for name, value in environ.items() if value}
    assert not imported
    assert short_variables({"DIEM_PORT": "1"})["DIEM_PROXY_PORT"] == "DIEM_PORT"
    assert "proxy.settings" in imported
