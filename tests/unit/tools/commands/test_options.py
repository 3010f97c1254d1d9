from tools.commands.options import parse_planned


def test_servers_that_run_are_planned_for() -> None:
    assert parse_planned(None, 5) == (1, 2, 3, 4, 5, 6, 12)
    assert parse_planned(None, None) == (1, 2, 3, 4, 6, 12)
    assert parse_planned("8,2", 5) == (2, 8)
