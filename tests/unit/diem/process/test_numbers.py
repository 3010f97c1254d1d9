import pytest

from diem.process.numbers import parse_number
from diem.process.settings import BadSettings, settings_of


@pytest.mark.parametrize(
    ("name", "number"),
    [("pair-0", 1), ("pair-1", 2), ("diem-x-pair-11", 12), ("host.example-3", 4), ("A-999999", 1_000_000)],
)
def test_the_name_of_a_pod_is_its_ordinal_plus_one(name: str, number: int) -> None:
    assert parse_number(name) == number


@pytest.mark.parametrize("value", ["1", " 12 ", "-1", "0", 7, None])
def test_a_number_is_left_to_the_rules_of_its_setting(value: object) -> None:
    assert parse_number(value) == value


@pytest.mark.parametrize(
    "name",
    [
        "",
        "pair",
        "pair-",
        "-",
        "--1",
        "pair-01",
        "pair-1.pairs.default.svc",
        "pair_1",
        "pair-1234567",
        "pair-x7k2p",
        "1.5",
    ],
)
def test_any_other_text_is_refused_with_the_forms_there_are(name: str) -> None:
    with pytest.raises(ValueError, match=r"a number from 1, or a name that ends in -N"):
        parse_number(name)


@pytest.mark.parametrize("process", ["bridge", "websocket", "proxy", "composite", "metadata"])
def test_every_numbered_process_takes_the_name_of_its_pod(process: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(process)
    monkeypatch.setenv(f"DIEM_{process.upper()}_NUMBER", "pair-2")
    assert settings.load().process_name == f"{process}-3"
    monkeypatch.setenv(f"DIEM_{process.upper()}_NUMBER", "pair-x7k2p")
    with pytest.raises(BadSettings, match=r"_NUMBER: it should be a number from 1, or .* \(is 'pair-x7k2p'\)"):
        settings.load()
