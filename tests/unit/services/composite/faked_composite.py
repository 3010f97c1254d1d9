"""A composite with fake children, as a program; ``FAKE_PORTS`` is the first port that these may have."""

import functools
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from diem.process import lifecycle, ports
from services.composite import main as module
from services.composite.composite import Composite
from services.composite.settings import Settings

CHILD_PORTS: Final = 40
_FAKE: Final = Path(__file__).with_name("fake_child.py")

if __name__ == "__main__":
    # Before they are used.
    vars(module)["ForkServer"] = SimpleNamespace(start=lambda _processes: None)
    vars(module)["Composite"] = functools.partial(
        Composite, launch=lambda child: (sys.executable, str(_FAKE), child.process)
    )
    if first := int(os.environ.get("FAKE_PORTS", "0")):
        vars(ports)["CHILD_RANGE"] = range(first, first + CHILD_PORTS)
    sys.exit(lifecycle.run(Settings.load(), module.main))
