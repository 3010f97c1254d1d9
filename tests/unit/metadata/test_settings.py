import pytest
from pydantic import ValidationError

from diem.process.settings import reference
from metadata.settings import Settings


@pytest.mark.parametrize(("given", "numbers"), [(1, [1]), (3, [1, 2, 3]), ([2], [2]), ([3, 1, 3], [1, 3])])
def test_clones_are_a_count_or_a_list(given: int | list[int], numbers: list[int]) -> None:
    assert Settings(clones=given).clone_numbers == numbers


@pytest.mark.parametrize("given", [0, -1, [], [0], 1001])
def test_clones_out_of_bounds_are_refused(given: int | list[int]) -> None:
    with pytest.raises(ValidationError, match="clone"):
        Settings(clones=given)


def test_clones_come_from_the_environment_as_a_number_or_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIEM_METADATA_CLONES", "2")
    assert Settings.load().clone_numbers == [1, 2]
    monkeypatch.setenv("DIEM_METADATA_CLONES", "[4]")
    assert Settings.load().clone_numbers == [4]
    monkeypatch.setenv("DIEM_METADATA_CLONES", "4,2")
    assert Settings.load().clone_numbers == [2, 4]


def test_default_ports_are_those_of_the_documentation() -> None:
    assert (Settings().port, Settings().internal_port) == (8400, 9400)


def test_every_setting_is_in_the_reference() -> None:
    shown = {row.variable: row for row in reference(Settings, shared=False)}
    assert shown["DIEM_ALLOWED"].default == '["127.0.0.0/8"]'
    assert shown["DIEM_CLONES"].type == "integer | list a,b"
    assert all(row.description for row in shown.values())


def test_several_are_named_by_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.load().process_name == "metadata"
    monkeypatch.setenv("DIEM_METADATA_NUMBER", "metadata-1")
    assert Settings.load().process_name == "metadata-2"
