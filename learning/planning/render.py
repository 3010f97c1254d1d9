"""Render the forecast of a plan (a table per number of servers, and text) and the progress of a migration."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from deploy.clients.metadata import PlanStatus
from deploy.invocation import diem_command
from deploy.terminal import amount, plain_table
from deploy.topology import Mode


@contextmanager
def progress_line(console: Console) -> Iterator[Callable[[str, str], None]]:
    """Yield a function that shows a text; without a terminal, only if its key has changed."""
    last = ""
    if console.is_terminal:
        with console.status("") as line:
            yield lambda _key, text: line.update(Text(text))
        return

    def show(key: str, text: str) -> None:
        nonlocal last
        if key != last:
            console.print(text, soft_wrap=True)
        last = key

    yield show


COLUMNS: Final = {
    "mode_x": "mode x",
    "current": "now",
    "plan": "planned",
    "murmur2": "murmur2",
    "round_robin": "round robin",
    "lpt": "LPT",
}
"""Mode x, and placements of a report; the last three ignore subscriptions."""
SHOWS_US_PER_S: Final = 10_000
"""Savings of CPU time, 1 % of a core, below which nobody sees them beside what processes take at rest."""
MAX_SERVERS: Final = 16
"""Servers of which a forecast names the clients."""
_ROWS: Final = (
    ("fan-out, mean", "fan_out", ".2f"),
    ("fan-out, other clients", "held_out_fan_out", ".2f"),
    ("fan-out, p99", "fan_out_p99", ".0f"),
    ("connections", "connections", ",.1f"),
    ("their memory, MiB", "memory_mib", ",.1f"),
    ("max/mean load", "max_over_mean_load", ".3f"),
    ("fullest server: clients", "clients_fullest", ",.0f"),
    ("  after a loss", "clients_after_loss", ",.0f"),
    ("  s until all are live again", "storm_s", ",.1f"),
    ("  memory, MiB", "memory_mib_fullest", ",.1f"),
    ("  MB/s to clients", "megabytes_fullest", ",.3f"),
    ("  CPU, % of a core", "cpu_percent_fullest", ",.1f"),
    ("CPU, ms/s: updates", "updates_us_per_s", ",.3f"),
    ("  frames", "frames_us_per_s", ",.3f"),
    ("  connections", "connections_us_per_s", ",.3f"),
    ("  proxies", "proxies_us_per_s", ",.3f"),
    ("  all", "cpu_us_per_s", ",.3f"),
)


def forecast(report: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Render the report of a plan: its moves and their expected gain."""
    if "servers" not in report:
        yield Text("The plan has no report of its gain.")
        return
    for count, figures in report["servers"].items():
        yield placement_table(int(count), figures)
        yield Text(_gaps(figures))
        yield Text("")
    yield from map(Text, sentences(report))


def placement_table(servers: int, figures: Mapping[str, Any]) -> Table:
    """Render the figures of each placement for a number of servers."""
    there = [name for name in COLUMNS if name in figures]
    numbers = [COLUMNS[name] for name in there]
    made = plain_table(amount(servers, "server"), *numbers, right=numbers)
    for label, key, form in _ROWS:
        values = [figures[name].get(key) for name in there]
        if any(value is not None for value in values) and (any(values) or key != "proxies_us_per_s"):
            scale = 1000 if key.endswith("us_per_s") else 1
            made.add_row(label, *("" if value is None else format(value / scale, form) for value in values))
    return made


def sentences(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the moves, the savings, and the effect in the mode that runs."""
    moves, hot = report["moves"], report["hot"]
    yield (
        f"{moves['endpoints']:,} of {amount(moves['of'], 'endpoint')} would move, "
        f"with {percent(moves['subscriptions'])} of the subscriptions; {_partitions(report)}"
    )
    if hot["endpoints"]:
        more = ", ..." if hot["endpoints"] > len(hot["names"]) else ""
        yield (
            f"{amount(hot['endpoints'], 'hot endpoint')}, which every server has: {', '.join(hot['names'])}{more}; "
            f"that adds {percent(hot['added_load'])} of load"
        )
    yield from _capacity(report.get("capacity") or {})
    if hot.get("all"):
        yield "These are all endpoints with subscribers: mode x does the same without a plan"
    yield from _savings(report)
    yield from _comparison(report)
    yield _effect_in_mode(report)


def _partitions(report: Mapping[str, Any]) -> str:
    count = report["partitions"]
    before, new = report.get("partitions_before", count), report.get("partitions_of_new_log", count)
    if count > before:
        return f"{count} partitions, {count - before} more than the log has"
    return f"{count} partitions" if count == new else f"{count} partitions, as the log has: a new one would get {new}"


def _capacity(known: Mapping[str, Any]) -> Iterator[str]:
    limits, enough = known.get("limits", {}), known.get("enough")
    for count, used in known.get("servers", {}).items():
        clients = used["clients"]
        named = ", ".join(f"{each:,.0f}" for each in clients[:MAX_SERVERS])
        more = ", ..." if len(clients) > MAX_SERVERS else ""
        yield (
            f"Clients of each of {amount(int(count), 'server')}: {named}{more}; the fullest has {max(clients):,.0f} of "
            f"{limits['clients']:,.0f} (DIEM_WEBSOCKET_CAPACITY)"
        )
        left = known.get("after_loss", {}).get(count, {})
        if beyond := [name for name, value in left.items() if value > limits[name]]:
            shares = " and ".join(f"{left[name]:,.0f} {name} of {limits[name]:,.0f}" for name in beyond)
            yield f"  after the loss of one, another would have {shares}: plan for {enough or 'more'} --servers"


def _savings(report: Mapping[str, Any]) -> Iterator[str]:
    saved, costs = report["saves_us_per_s"], report["costs"]
    what = f"saves {saved / 1000:,.3f} ms" if saved >= 0 else f"costs {-saved / 1000:,.3f} ms more"
    error = report.get("saves", {}).get("error", 0.0)
    yield f"It {what} of CPU a second (+- {2 * error / 1000:,.3f} ms, two standard errors)"
    yield from _size_of_savings(report)
    if (sample := report.get("sample")) is not None:
        share = percent(sample["clients"])
        with_all = f"; from all it would be +- {2 * (sample['error_of_all'] or 0.0) / 1000:,.3f} ms"
        yield f"  from a sample of {share} of the clients{with_all if sample['error_of_all'] else ''}"
    if windows := report.get("windows"):
        yield f"  for the clients of this window; the plan is made from {amount(windows, 'window')} before it"
    if (held_out := report.get("held_out")) is not None:
        yield (
            f"  for clients that plans were made without ({held_out['clients']:,.0f}, in {held_out['parts']} parts); "
            f"for those of the window {report['saves_in_window_us_per_s'] / 1000:,.3f} ms"
        )
    yield (
        f"  by a = {costs['update_us']:g} us an update, b = {costs['delivery_us']:g} us a frame, "
        f"kappa = {costs['connection_us_per_s']:g} us/s a connection ({costs.get('source', 'given')})"
    )
    if saving := costs.get("merged_saving_us", 0.0) + costs.get("proxy_merged_saving_us", 0.0):
        yield f"  and {saving:.3g} us less for a frame that shares a send with another one of its write"


def _size_of_savings(report: Mapping[str, Any]) -> Iterator[str]:
    """Name the number of clients from which savings show in CPU, below it."""
    saved = report["saves_us_per_s"]
    clients = max((own["mode_x"]["connections"] for own in report["servers"].values() if "mode_x" in own), default=0.0)
    if clients > 0 and 0 < saved < SHOWS_US_PER_S:
        enough = clients * SHOWS_US_PER_S / saved
        yield (
            f"  which is below 1 % of a core and does not show: it would from about {enough:,.0f} such clients on "
            f"({clients:,.0f} now); before, a plan saves connections and their memory"
        )


def _comparison(report: Mapping[str, Any]) -> Iterator[str]:
    """Compare the plan with mode x, which decides whether to partition at all."""
    for count, figures in report["servers"].items():
        if "mode_x" in figures:
            more = figures["mode_x"]["cpu_us_per_s"] - figures["plan"]["cpu_us_per_s"]
            what = f"{abs(more) / 1000:,.3f} ms {'more' if more >= 0 else 'less'}"
            yield f"Mode x with {amount(int(count), 'server')} would take {what} of CPU a second than this plan"
    if (waste := report.get("waste")) and waste["consumed"]:
        share = percent(waste["discarded"] / waste["consumed"])
        yield f"  of {amount(waste['consumed'], 'update')} that servers consumed, {share} had no subscriber there"
    if cheaper := report.get("cheaper_mode"):
        yield f"{cheaper}; to compare all modes: {diem_command('recommend')}"


def obstacle(found: Mapping[str, Any]) -> str:
    """Return the obstacle to a plan, with the remedy."""
    match found["kind"]:
        case "movement":
            return (
                f"a plan without a budget pays ({found['why']}), but moves {percent(found['moves'])} of the "
                f"subscriptions; the budget is {percent(found['budget'])}. Run `diem plan` without `--movement` and "
                "`diem apply` once, then `diem autoplan`."
            )
        case "chance":
            return "its gain may be due to chance: learn from more traffic, such as `--window 1d`"
        case "hold_out":
            return "it pays only for the clients that it was made from: learn from more traffic, such as `--window 1d`"
        case _:
            return "the load would be uneven: try more partitions (`diem plan --partitions`)"


def window_line(start: str, end: str, minutes: int, active: int | None) -> str:
    """Return the window (ISO 8601, UTC) of mean figures, with its number of minutes with clients."""
    same_day = start[:10] == end[:10]
    first, last = (time[11:16] if same_day else time[:16].replace("T", " ") for time in (start, end))
    known = "" if active is None else f"; clients in {active} of {amount(minutes, 'minute')}"
    return f"means over {first}-{last} (UTC){known}"


def _effect_in_mode(report: Mapping[str, Any]) -> str:
    """Return the effect in the current mode."""
    stay = "with proxies connections stay one to each server for each proxy, whatever the map"
    match report.get("mode"):
        case Mode.Z_CLIENT:
            return (
                f"What changes: the connections of clients, one to each server that they need: {_connections(report)}"
            )
        case None:
            return f"What changes: connections of clients: {_connections(report)}; {stay}"
    return f"What changes: {stay}; what falls is the sends to clients, and how many servers each depends on"


def _connections(report: Mapping[str, Any]) -> str:
    changes = []
    for count, figures in report["servers"].items():
        now, then = (figures[name]["connections"] for name in ("current", "plan"))
        changes.append(f"{now:,.1f} -> {then:,.1f} with {amount(int(count), 'server')}")
    return "; ".join(changes)


def _gaps(figures: Mapping[str, Any]) -> str:
    return f"planned is above the lower bound by {percent(figures['gaps']['max_over_mean_load'])} (max/mean load)"


def plans_table(plans: Iterable[PlanStatus]) -> Table:
    """Render the submitted plans, the latest last."""
    numbers = ("endpoints", "partitions", "for epoch")
    made = plain_table("plan", "state", *numbers, "created", right=numbers)
    for plan in plans:
        counts = (plan.endpoints, plan.partitions, plan.epoch_of_plan)
        shown = ("-" if count is None else str(count) for count in counts)
        made.add_row(plan.id, format_state(plan), *shown, plan.created or "-")
    return made


def format_state(plan: PlanStatus) -> str:
    """Return the state of a plan for people."""
    return "outdated" if plan.is_outdated else plan.state.replace("_", " ")


def percent(share: float) -> str:
    """Return a share as a percentage of three digits."""
    return f"{share * 100:.3g} %"
