"""Draw the figures of thesis and paper with matplotlib, an optional package (extra ``figures``), from ``tables``.

The same version of matplotlib gives the same bytes in every run.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from diem.errors import ConfigurationError
from experiments.paper import rules, tables
from experiments.paper.program import Program
from experiments.paper.tables import METRICS, READINGS, SIZES, SWEEPS, UNITS, Reading
from learning.sizing import even

_PACKAGE: Final = "matplotlib"
_STYLES: Final = {"BroMin": ("tab:blue", "o"), "BroMax": ("tab:green", "s"), "MS-CNFL": ("tab:red", "^")}
_LIMITS: Final = {"latency": 200.0, "unavailability": 2000.0, "OS load": 10_000.0}


class NoFigures(ConfigurationError):
    """Matplotlib is not installed."""

    template = "figures need matplotlib: install it with `make figures`, or write the numbers with --format csv"


def write_all(folder: Path, image: str) -> Iterator[Path]:
    """Write every table as CSV and, unless that is the format, every figure; yield each file.

    Raises:
        NoFigures: matplotlib is needed and not installed; nothing is written.
        OSError: a file cannot be written.
    """
    if image != "csv" and find_spec(_PACKAGE) is None:
        raise NoFigures
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables.all_tables():
        file = folder / f"{table.name}.csv"
        file.write_text(table.as_csv(), encoding="utf-8")
        yield file
    if image == "csv":
        return
    for name, drawing in drawings():
        file = folder / f"{name}.{image}"
        save(drawing(), file)
        yield file


def drawings() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the names of the figures, with what draws each. Needs matplotlib only when that is called."""
    yield "thesis-69-infrastructure", draw_infrastructure
    yield "thesis-70-partitions-1-60", partial(draw_heat_maps, 1, 60)
    yield "thesis-71-partitions-61-120", partial(draw_heat_maps, 61, 120)
    yield "paper-1-example", draw_example
    for figure in SWEEPS:
        for number, reading in enumerate(READINGS, 1):
            yield f"paper-{figure}-reading-{number}", partial(draw_paper_figure, figure, reading)
    yield "paper-replication-time", draw_replication_times


def draw_infrastructure() -> Any:  # a matplotlib.figure.Figure
    """Draw the flows through three servers (thesis, figure 69)."""
    figure = _figure(9, 5)
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_xlim(0, 9)
    axes.set_ylim(0, 5)
    _box(axes, 4.5, 4.5, "producers: $T_T$")
    _box(axes, 4.5, 0.5, "$g$ consumer groups, $T_T$ each")
    for number, x in enumerate((1.5, 4.5, 7.5), 1):
        _box(axes, x, 2.5, f"server {number}\nstores $T_T r / n$")
        _arrow(axes, (4.5, 4.2), (x, 2.95), "$T_T / n$" if number == 1 else "")
        _arrow(axes, (x, 2.05), (4.5, 0.8), "$T_T g / n$" if number == 1 else "")
    for left in (2.45, 5.45):
        _arrow(axes, (left, 2.5), (left + 1.1, 2.5), "", style="<->")
        axes.text(left + 0.55, 2.62, "$T_T (r - 1) / n$\nto each", ha="center", fontsize=9)
    figure.suptitle("Thesis, figure 69: what each of $n$ servers carries")
    return figure


def draw_heat_maps(first: int, last: int) -> Any:
    """Draw which sizes are uniform for each count, and the busiest share over the mean (thesis, figures 70 and 71)."""
    figure = _figure(11, 11)
    left, right = figure.subplots(1, 2, sharey=True)
    counts = range(first, last + 1)
    uniform = [[float(even.imbalance(count, size) == 1) for size in SIZES] for count in counts]
    shares = [[min(even.imbalance(count, size), 2.0) for size in SIZES] for count in counts]
    extent = (0.5, len(SIZES) + 0.5, last + 0.5, first - 0.5)
    left.imshow(uniform, aspect="auto", cmap="Greens", vmin=0, vmax=1.4, extent=extent)
    image = right.imshow(shares, aspect="auto", cmap="YlOrRd", vmin=1, vmax=2, extent=extent)
    figure.colorbar(image, ax=right, label="busiest server over the mean (2: or more)")
    for axes, title in ((left, "uniform (equation 8)"), (right, "graded")):
        axes.set_title(title)
        axes.set_xticks(SIZES)
        axes.set_xlabel("servers n")
    left.set_ylabel("partitions p")
    left.set_yticks([count for count in counts if count % 6 == 0])
    figure.suptitle(f"Thesis, figure {70 if first == 1 else 71}: partition counts {first} to {last}")
    return figure


def draw_example() -> Any:
    """Draw four partitions in three replicas on four brokers (paper, figure 1)."""
    figure = _figure(7, 4)
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_xlim(-0.6, 3.6)
    axes.set_ylim(-1.4, 4.4)
    for partition, *brokers in tables.example().rows:
        for place, broker in enumerate(brokers):
            colour = "tab:purple" if place == 0 else "lightgray"
            ink = "white" if place == 0 else "black"
            _box(axes, float(str(broker)), float(str(partition)), f"partition {partition}", face=colour, ink=ink)
    for broker in range(4):
        axes.text(broker, -0.75, f"broker {broker}", ha="center")
    axes.text(1.5, 4.1, "2 producers write to leaders (purple); 4 consumers read a partition each", ha="center")
    axes.text(1.5, -1.25, "P = 4, b = 4, r = 3: P r / b = 3 replicas on each broker", ha="center", fontsize=9)
    figure.suptitle("Paper, figure 1")
    return figure


def draw_paper_figure(number: int, reading: Reading) -> Any:
    """Draw panels a to e of a figure of the paper for a reading, and the probabilities that its means hide."""
    varied, symbol = SWEEPS[number]
    points = list(tables.programs(number, reading))
    figure = _figure(15, 9)
    figure.subplots(2, 3)
    found = [(value, tables.curves(program)) for value, program in points]
    for method in _STYLES:
        known = [(value, curve) for value, each in found if (curve := each[method]) is not None]
        _plot(figure.axes[0], method, [(value, curve.partitions) for value, curve in known])
        _plot(figure.axes[1], method, [(value, curve.brokers) for value, curve in known])
        for axes, metric in zip(figure.axes[2:5], METRICS, strict=True):
            _plot(axes, method, [(value, curve.metrics[metric]) for value, curve in known])
    titles = ["a: partitions P", "b: brokers b", *(f"{metric}, {UNITS[metric]}" for metric in METRICS)]
    for axes, title, letter in zip(figure.axes, titles, ("", "", "c: ", "d: ", "e: "), strict=False):
        axes.set_title(letter + title)
        axes.legend()
    for axes, metric in zip(figure.axes[2:5], METRICS, strict=True):
        axes.axhline(_LIMITS[metric], color="black", linestyle="--", linewidth=1)
        axes.set_yscale("log")
    _draw_probabilities(figure.axes[5], points)
    for axes in figure.axes:
        axes.set_xlabel(f"{varied} {symbol}")
        axes.xaxis.get_major_locator().set_params(integer=True)
    stated = {"B": reading.brokers, "r": reading.replicas, "c": reading.consumers}
    assumed = ", ".join(f"{name} = {value}" for name, value in stated.items() if name != symbol)
    figure.suptitle(f"Paper, figure {number}, read with {assumed} ({reading.name}); MS-CNFL: exact means")
    return figure


def draw_replication_times() -> Any:
    """Draw what the evaluation finds for l_r = 1 ms and for the 0.02 ms of the report that it cites."""
    figure = _figure(13, 8)
    first = READINGS[0]
    replicas = range(1, first.brokers + 1)
    for column, (name, replication_ms) in enumerate(tables.REPLICATION_MS.items()):
        programs = [Program(first.consumers, r, first.brokers, replication_ms=replication_ms) for r in replicas]
        found = [(r, tables.curves(program)) for r, program in zip(replicas, programs, strict=True)]
        above = figure.add_subplot(2, 2, column + 1)
        below = figure.add_subplot(2, 2, column + 3)
        for method in ("BroMax", "MS-CNFL"):
            known = [(r, curve[method]) for r, curve in found]
            _plot(above, method, [(r, curve.partitions) for r, curve in known if curve is not None])
        above.set_yscale("log")
        above.set_title(f"$l_r$ = {replication_ms:g} ms ({name}): partitions")
        above.legend()
        broken = [rules.violations(program) for program in programs]
        _plot(below, "MS-CNFL", [(r, each.latency) for r, each in zip(replicas, broken, strict=True)])
        below.set_ylim(-0.03, 1.03)
        for axes in (above, below):
            axes.set_xticks(replicas[1::2])
        below.set_title("probability that MS-CNFL breaks the latency limit")
        binds = programs[2].binding(first.brokers)
        below.set_xlabel(f"replicas r (at r = 3 BroMax is bound by {binds})")
    figure.suptitle(f"The replication time of one partition decides the conclusion (B = {first.brokers})")
    return figure


def _draw_probabilities(axes: Any, points: list[tuple[int, Program]]) -> None:
    """Draw the probability with which a draw of MS-CNFL breaks each constraint."""
    broken = [(value, rules.violations(program)) for value, program in points]
    names = {"latency": "latency", "unavailability": "unavailability", "throughput": "P below c", "any": "any"}
    for name, label in names.items():
        axes.plot([value for value, _ in broken], [getattr(each, name) for _, each in broken], label=label)
    axes.set_ylim(-0.03, 1.03)
    axes.set_title("probability that MS-CNFL breaks a constraint")
    axes.legend()


def _plot(axes: Any, method: str, points: list[tuple[int, float]]) -> None:
    colour, marker = _STYLES[method]
    axes.plot([x for x, _ in points], [y for _, y in points], color=colour, marker=marker, markersize=3, label=method)


def _box(axes: Any, x: float, y: float, text: str, *, face: str = "whitesmoke", ink: str = "black") -> None:
    style = {"boxstyle": "round,pad=0.5", "facecolor": face, "edgecolor": "black"}
    axes.text(x, y, text, ha="center", va="center", color=ink, bbox=style)


def _arrow(axes: Any, begin: tuple[float, float], end: tuple[float, float], text: str, *, style: str = "->") -> None:
    axes.annotate("", xy=end, xytext=begin, arrowprops={"arrowstyle": style})
    if text:
        axes.text((begin[0] + end[0]) / 2 - 0.2, (begin[1] + end[1]) / 2, text, ha="right", fontsize=9)


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure  # noqa: PLC0415 - an optional package

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, file: Path) -> None:
    """Write a figure in the format of the file's name."""
    import matplotlib as mpl  # noqa: PLC0415 - an optional package

    # Neither dates nor random ids.
    with mpl.rc_context({"svg.hashsalt": file.stem}):
        metadata = {"Date": None} if file.suffix == ".svg" else {"Software": None}
        figure.savefig(file, metadata=metadata, dpi=110)
