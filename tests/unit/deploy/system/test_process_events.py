from deploy.system.process_events import MAX_CHARACTERS, MAX_EVENTS, ProcessEvents
from diem.process.clock import ManualClock


def test_latest_events_come_first_with_their_times() -> None:
    clock = ManualClock()
    events = ProcessEvents(clock)
    events.add("websocket-1", "died: killed by SIGKILL")
    clock.advance(1.5)
    events.add("websocket-1", "ready again")
    assert events.recent() == [
        {"time": "2023-11-14T22:13:21.500Z", "process": "websocket-1", "text": "ready again"},
        {"time": "2023-11-14T22:13:20.000Z", "process": "websocket-1", "text": "died: killed by SIGKILL"},
    ]


def test_events_and_their_texts_are_bounded() -> None:
    events = ProcessEvents(ManualClock())
    for number in range(2 * MAX_EVENTS):
        events.add("data", f"{number} " + "x" * 2 * MAX_CHARACTERS)
    assert len(events.recent()) == MAX_EVENTS
    assert events.recent()[0]["text"].startswith("99 ")
    assert len(events.recent()[0]["text"]) == MAX_CHARACTERS
