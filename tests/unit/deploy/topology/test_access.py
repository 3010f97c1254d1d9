import json
from pathlib import Path

import pytest

from deploy.topology import (
    BadTopology,
    ClientAccess,
    Mode,
    client_access,
    has_anonymous_plan,
    overridden,
    parse_settings,
)
from tests.unit.deploy.topology.topologies import topology


def values(access: ClientAccess, *, trusts_loopback: bool = True) -> dict[str, str]:
    return access.values(["/keys"], trusts_loopback=trusts_loopback)


def test_nothing_is_decided_without_variables() -> None:
    access = client_access({"DIEM_WEBSOCKET_ANONYMOUS": "", "DIEM_WEBSOCKET_PORT": "1", "ANONYMOUS": "on"})
    assert values(access) == {"TOKEN_KEYS": '["/keys"]'}
    assert access.anonymous_reads == "auto"


def test_any_variable_counts_in_upper_or_lower_case_and_keys_are_added() -> None:
    access = client_access(
        {
            "diem_metadata_anonymous": "off",
            "DIEM_COMPOSITE_TOKEN_KEYS": '["https://a/keys", "b.json"]',
            "DIEM_PROXY_TOKEN_AUDIENCE": "market",
            "DIEM_WEBSOCKET_TOKEN_ISSUERS": '["acme"]',
            "DIEM_PROXY_TOKEN_ISSUERS": '["acme"]',
            "DIEM_DATA_ANONYMOUS_READS": "on",
        }
    )
    assert values(access) == {
        "ANONYMOUS": "off",
        "TOKEN_KEYS": json.dumps(["/keys", "https://a/keys", "b.json"]),
        "TOKEN_AUDIENCE": "market",
        "TOKEN_ISSUERS": '["acme"]',
    }
    assert access.anonymous_reads == "on"


@pytest.mark.parametrize(
    ("anonymous", "reads", "expected"),
    [
        ("off", None, "off"),
        ("off", "auto", "auto"),
        ("off", "on", "on"),
        ("auto", None, "auto"),
        ("on", None, "auto"),
        (None, None, "auto"),
    ],
)
def test_off_is_for_reads_too_unless_these_have_a_setting(
    anonymous: str | None, reads: str | None, expected: str
) -> None:
    environ = {} if reads is None else {"DIEM_DATA_ANONYMOUS_READS": reads}
    for access in (
        client_access(environ, anonymous),
        client_access(environ if anonymous is None else environ | {"DIEM_PROXY_ANONYMOUS": anonymous}),
    ):
        assert access.anonymous_reads == expected
        variables = topology(Mode.SINGLE, access=access).processes[0].env
        # Others are left to the environment of the process.
        assert variables.get("DIEM_DATA_ANONYMOUS_READS") == ("off" if expected == "off" else None)


@pytest.mark.parametrize(("rule", "closed"), [(None, "off"), ("auto", "off"), ("off", "off"), ("on", "on")])
def test_auto_is_off_where_addresses_of_this_machine_prove_nothing(rule: str | None, closed: str) -> None:
    access = client_access({} if rule is None else {"DIEM_PROXY_ANONYMOUS": rule})
    assert values(access, trusts_loopback=False)["ANONYMOUS"] == closed
    assert values(access).get("ANONYMOUS") == rule


def test_variables_that_differ_are_refused_unless_the_command_line_decides() -> None:
    environ = {"DIEM_PROXY_ANONYMOUS": "off", "DIEM_METADATA_ANONYMOUS": "on"}
    text = "DIEM_PROXY_ANONYMOUS and DIEM_METADATA_ANONYMOUS differ: all processes must have the same setting"
    with pytest.raises(BadTopology, match=text):
        client_access(environ)
    assert values(client_access(environ, "auto"))["ANONYMOUS"] == "auto"
    assert overridden(topology(Mode.Z_PROXY, access=client_access(environ, "auto")), environ) == sorted(environ)


@pytest.mark.parametrize("keys", ['"keys.json"', "[1]"])
def test_keys_are_a_list(keys: str) -> None:
    with pytest.raises(BadTopology, match="DIEM_PROXY_TOKEN_KEYS: a list of files and URLs is needed"):
        client_access({"DIEM_PROXY_TOKEN_KEYS": keys})


def test_keys_may_be_plain_texts_with_commas() -> None:
    assert client_access({"DIEM_PROXY_TOKEN_KEYS": "a.json,b.json"}).token_keys == ("a.json", "b.json")


def test_keys_that_are_added_are_not_said_to_have_no_effect() -> None:
    environ = {"DIEM_WEBSOCKET_TOKEN_KEYS": '["/acme"]'}
    assert overridden(topology(Mode.SINGLE, access=client_access(environ)), environ) == []


def test_one_process_alone_gets_no_other_rule() -> None:
    with pytest.raises(BadTopology, match="--set: diem_Proxy_ANONYMOUS is the same for all processes"):
        parse_settings(["proxy-1:diem_Proxy_ANONYMOUS=on"])


@pytest.mark.parametrize(
    ("reads", "plan", "trusted", "expected"),
    [
        ("auto", False, True, "auto"),
        ("auto", False, False, "off"),
        ("on", False, False, "on"),
        ("off", False, True, "off"),
        ("on", True, True, "off"),
    ],
)
def test_data_goes_without_a_token_to_those_who_may_read_it_without_a_key(
    reads: str, plan: bool, trusted: bool, expected: str
) -> None:
    access = client_access({"DIEM_DATA_ANONYMOUS_READS": reads}, anonymous_plan=plan)
    assert access.anonymous_data(trusts_loopback=trusted) == expected


def test_what_the_operator_set_for_data_counts_for_all_processes() -> None:
    access = client_access({"DIEM_PROXY_ANONYMOUS_DATA": "on"}, anonymous_plan=True)
    assert access.anonymous_data(trusts_loopback=False) == "on"
    assert "ANONYMOUS_DATA" not in values(access)
    with pytest.raises(BadTopology, match="differ"):
        client_access({"DIEM_PROXY_ANONYMOUS_DATA": "on", "DIEM_WEBSOCKET_ANONYMOUS_DATA": "off"})


def test_a_plan_for_readers_without_a_key_is_found_in_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "diem.toml"
    file.write_text('[[plan]]\nname = "standard"\n[[plan]]\nname = "anonymous"\nper_minute = 60\n')
    assert has_anonymous_plan(file)
    file.write_text('[[plan]]\nname = "anonymous"\n', encoding="utf-8-sig")
    assert has_anonymous_plan(file)
    file.write_text('[[plan]]\nname = "standard"\n')
    assert not has_anonymous_plan(file)
    file.write_text("not toml")
    assert not has_anonymous_plan(file)
    assert not has_anonymous_plan(None)
