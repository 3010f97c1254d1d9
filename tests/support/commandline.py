"""Command line of the modules of the tests (``python -m tests...``): ``--help``, and an error for unknown arguments."""

import argparse
import signal
from importlib.machinery import ModuleSpec
from typing import Final


def heed_interrupts() -> None:
    """Heed SIGINT also where it is ignored, as in a script's background: processes started here inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_SMALLEST: Final = "shows in seconds that it runs, and judges no speed (make smoke runs all)"
_SHORTER: Final = "makes it short, to see that it works: its figures are not to be compared with others"


def parser(
    spec: ModuleSpec | None, description: str | None, *, report: str | None = None, quick: str | None = None
) -> argparse.ArgumentParser:
    """Return a parser for a module, which adds its own options.

    Args:
        spec: the module's ``__spec__``.
        description: its docstring: what it does.
        report: where what it has found is written.
        quick: what ``QUICK=1`` in the environment changes, if sizes make a difference; "" for the usual.
    """
    notes = []
    if quick is not None:
        notes.append(f"environment:\n  QUICK=1  {quick or _SHORTER}\n  SMOKE=1  {_SMALLEST}")
    if report is not None:
        notes.append(f"report:\n  {report}")
    return argparse.ArgumentParser(
        prog=f"python -m {spec.name.removesuffix('.__main__')}" if spec is not None else None,
        description=(description or "").replace("``", "").strip(),
        epilog="\n\n".join(notes),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
