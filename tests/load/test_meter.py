import os
from pathlib import Path
from threading import Event, Thread
from time import process_time, thread_time

import pytest

from tests.bench.procfs import serving_seconds
from tests.load.meter import kind_of, measured, usage
from tests.load.processes import Process

BEFORE = {
    "nginx": {"cpu": 1.0, "memory_kib": 10.0},
    "websocket-1": {"cpu": 1.0, "memory_kib": 20.0, "clients": 8.0, "updates_not_subscribed_total": 5.0},
    "composite-1/websocket-1": {"cpu": 2.0, "memory_kib": 30.0, "proxy_links": 2.0},
}
AFTER = {
    "nginx": {"cpu": 1.1, "memory_kib": 10.0},
    "websocket-1": {
        "cpu": 1.2,
        "memory_kib": 24.0,
        "clients": 10.0,
        "updates_not_subscribed_total": 15.0,
        "updates_fanned_out_total": 30.0,
        "updates_stale_total": 2.0,
    },
    "composite-1/websocket-1": {"cpu": 2.2, "memory_kib": 30.0, "proxy_links": 2.0},
}


def test_processes_of_a_kind_are_added_also_those_in_composites() -> None:
    found = measured(BEFORE, AFTER, 2.0)
    assert found["cpu_ms"] == {"nginx": 50.0, "websocket": 200.0}
    assert found["memory_kib"] == {"nginx": 10, "websocket": 54}
    assert found["connections"] == 11.0
    assert (found["taken"], found["not_subscribed"], found["waste"]) == (40, 10, 0.25)
    assert kind_of("composite-2/websocket-1") == "websocket"


def test_what_a_jvm_compiles_is_not_the_cpu_of_its_broker() -> None:
    before, after = (
        {"kafka-1": {"cpu": cpu, "compiling": own, "memory_kib": 1.0}} for cpu, own in ((1, 4), (1.1, 4.06))
    )
    found = measured(before, after, 2.0)
    assert (found["cpu_ms"], found["compiling_ms"]) == ({"kafka": 50.0}, 30.0)


def test_cpu_of_a_process_is_that_of_its_threads_also_of_those_that_ended() -> None:
    def spin() -> None:
        end = thread_time() + 0.05
        while thread_time() < end:
            pass

    own = Process("bridge-1", os.getpid(), None, None, 0)
    before = usage([own])["bridge-1"]["cpu"]
    ended = Thread(target=spin)
    ended.start()
    ended.join()
    assert usage([own])["bridge-1"]["cpu"] - before >= 0.05


def test_compiler_is_told_by_the_names_of_its_threads() -> None:
    def named() -> None:
        Path("/proc/thread-self/comm").write_text("C1 CompilerThre")
        end = thread_time() + 0.05
        while thread_time() < end:
            pass
        spun.set()
        release.wait()

    spun, release = Event(), Event()
    # The time of all threads is read first and last, so whatever others do between two reads is part of it.
    all_before, before = process_time(), serving_seconds(os.getpid())
    compiler = Thread(target=named)
    compiler.start()
    spun.wait()
    serving, all_threads = serving_seconds(os.getpid()) - before, process_time() - all_before
    release.set()
    compiler.join()
    assert all_threads - serving >= 0.045


def test_process_that_came_or_began_anew_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"come or gone.*nginx"):
        measured({name: BEFORE[name] for name in BEFORE if name != "nginx"}, AFTER, 2.0)
    with pytest.raises(LookupError, match="nginx began anew"):
        measured(BEFORE, {**AFTER, "nginx": {"cpu": 0.1, "memory_kib": 10.0}}, 2.0)
