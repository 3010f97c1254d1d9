"""The TypeScript mirror of the code table says what the table says."""

import re
from pathlib import Path

from diem.protocol.codes import Close, ErrorCode, reconnects

SOURCE = (Path(__file__).parents[3] / "client/src/sdk/codes.ts").read_text()


def test_close_codes_are_the_same() -> None:
    entries = re.findall(r"^  ([A-Z_]+): \{ code: (\d+), reconnect: (true|false) \},$", SOURCE, re.MULTILINE)
    mirror = {name: (int(code), again == "true") for name, code, again in entries}
    assert mirror == {code.name: (code.value, reconnects(code)) for code in Close}


def test_error_codes_are_the_same() -> None:
    listed = re.search(r"ERROR_CODES = \[(.*?)\]", SOURCE, re.DOTALL)
    assert listed is not None
    assert re.findall(r'"([a-z_]+)"', listed[1]) == [code.value for code in ErrorCode]
