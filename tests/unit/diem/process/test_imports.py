import subprocess
import sys

import pytest

_REQUEST = """
import sys
from diem.process import imports
imports.{prepare}()
from httpcore._synchronization import current_async_library

class Finder:
    def find_spec(self, name, path=None, target=None):
        print(name)

sys.meta_path.insert(0, Finder())
assert current_async_library() == "asyncio"
"""


@pytest.mark.parametrize("prepare", ["prepare_imports", "skip_sniffio"])
def test_a_request_searches_for_no_module(prepare: str) -> None:
    ran = subprocess.run([sys.executable, "-c", _REQUEST.format(prepare=prepare)], capture_output=True, check=True)
    assert ran.stdout == b""
