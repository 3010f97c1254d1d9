import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.topology import BadTopology
from tools.hosts.env_file import parse, render

VALUES = st.text(st.characters(codec="utf-8", min_codepoint=32, exclude_categories=["Cc", "Cs", "Zl", "Zp"]))


@given(VALUES)
def test_every_value_is_read_as_it_was_written(value: str) -> None:
    assert parse(render({"A": value, "B": "2"}, "a comment")) == {"A": value, "B": "2"}


@pytest.mark.parametrize("value", ['["a", "b"]', "a b", 'it\'s $HOME `id` \\ "x"', "", "#no comment", "a;b"])
def test_a_shell_reads_the_same_values(value: str) -> None:
    script = render({"A": value}) + 'printf %s "$A"'
    assert subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout == value


def test_control_characters_are_refused() -> None:
    with pytest.raises(BadTopology, match="A: a file of variables takes no control characters"):
        render({"A": "x\nDIEM_DATA_HOST=0.0.0.0"})


def test_line_without_a_variable_is_an_error() -> None:
    with pytest.raises(ValueError, match="not NAME=VALUE: 'nonsense'"):
        parse("# comment\n\nnonsense\n")
