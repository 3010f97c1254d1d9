"""Shows how far something is: one line that changes on a terminal, lines of what is new elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text


@contextmanager
def telling(console: Console) -> Iterator[Callable[[str, str], None]]:
    """Give a function that shows a text; where there is no terminal, only when its key is another one than before."""
    last = ""
    if console.is_terminal:
        with console.status("") as line:
            yield lambda _key, text: line.update(Text(text))
        return

    def tell(key: str, text: str) -> None:
        nonlocal last
        if key != last:
            console.print(text, soft_wrap=True)
        last = key

    yield tell
