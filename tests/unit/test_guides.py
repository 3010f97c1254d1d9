"""What reads guides, and compares their output, finds what is wrong with them."""

from pathlib import Path

import pytest

from tests.support.guides import Output, begins_with, blocks, is_shown, steps

GUIDE = """# A guide

```sh
diem status   # how it is
diem get /my/series \\
  --csv
```

```text
time,value
...
```

Save this:

```toml diem.toml
[[source]]
```

1. In a list:

   ```sh elsewhere
   ssh other
   ```

Then

```text
is no output of a command
```
"""


@pytest.fixture
def guide(tmp_path: Path) -> Path:
    file = tmp_path / "guide.md"
    file.write_text(GUIDE)
    return file


def test_steps_are_commands_with_their_output_and_files(guide: Path) -> None:
    found = [(block.words, block.commands, shown) for block, shown in steps(guide)]
    assert found == [
        (("sh",), ["diem status", "diem get /my/series --csv"], Output("time,value\n...")),
        (("toml", "diem.toml"), ["[[source]]"], None),
        (("sh", "elsewhere"), ["ssh other"], None),
    ]
    assert [block.is_run for block, _ in steps(guide)] == [True, False, False]


def test_block_without_an_end_is_an_error(guide: Path) -> None:
    guide.write_text(GUIDE + "```sh\ndiem status\n")
    with pytest.raises(ValueError, match=r"guide\.md:\d+: this block does not end"):
        blocks(guide)


@pytest.mark.parametrize(
    ("shown", "printed", "equal"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\nb", "\na  \nb\n\n", True),
        ("a\nb", "a\nc\n", False),
        ("a\nb", "a\nb\nc\n", False),
        ("a\nb", "a\n", False),
        ("a ... c", "a (b) c\n", True),
        ("a ... c", "a c\n", False),
        ("a.c", "abc\n", False),
        ("a\n...\nc", "a\nb\nb\nc\n", True),
        ("a\n...\nc", "a\nb\n", False),
        ("...\nc", "a\nb\nc\n", True),
        ("a\n...", "a\nb\nc\n", True),
        ("as version 1764428400000", "as version 1700000000001\n", True),
        ("as version 1764428400000", "as version 17\n", False),
        ("15:02:11.512  live", "09:00:00.001  live\n", True),
        ("15:02:11.512  live", "09:00:00.001  stale\n", False),
        ("at 2026-11-29T15:02:11Z", "at 2027-01-01T00:00:00.5+01:00\n", True),
        ("up after 3.5 s", "up after 12.25 s\n", True),
        ("wait 10 s", "wait 5 s\n", False),
        ("client 0123456789abcdef", "client fedcba9876543210\n", True),
        ("plan p-20261129-190249-104d0b6a", "plan p-20270101-000000-eaf6991b\n", True),
        ("uptime 33s", "uptime 1h02m09s\n", True),
        ("key 7roox7he of", "key k3v9x0ab of\n", True),
        ("diem_7roox7he_...", "diem_k3v9x0ab_secret\n", True),
        ("a    b", "a  b\n", True),
        ("a    b", "a b\n", False),
        ("a  ... b", "a   c  b\n", True),
    ],
)
def test_output_is_compared_line_by_line(shown: str, printed: str, equal: bool) -> None:
    assert is_shown(Output(shown), printed) is equal


@pytest.mark.parametrize(
    ("shown", "printed", "equal"),
    [
        ("fan-out, mean  1.00  3.10", "fan-out, mean  1.00   12", True),
        ("fan-out, mean  1.00  3.10", "fan-out, mean  1.00", False),
        ("fan-out, mean  1.00  3.10", "fan-out, p99  1.00  3.10", False),
        ("12,000 clients of 10,000", "7 clients of 10,000", True),
        ("up after 3.5 s", "up after 12.25 s", True),
    ],
)
def test_figures_of_a_block_of_figures_are_compared_by_their_form(shown: str, printed: str, equal: bool) -> None:
    assert is_shown(Output(shown, figures_vary=True), printed) is equal


def test_output_that_goes_on_is_compared_with_its_beginning() -> None:
    assert begins_with(Output("a\n...\nb"), "a\nx\nb\nc\n")
    assert not begins_with(Output("a\n...\nb"), "a\nx\n")
