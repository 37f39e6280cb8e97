"""Timer messages of a real broker (5.3.3): it takes over what waits in a store of ours, and the other way round.

The broker is RocketMQ's own controller, with its hooks and its timer store, without a network
(tools/interop/broker/Timers.java).
Nobody waits for an hour: our clock is set, and what we put an hour ago is due when the broker comes.
"""
import functools
import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from tests import soon
from tests.interop.content import SMALL_FILES
from tests.interop.jvm import FETCH_SECONDS, settings

SCRIPT = Path(__file__).parents[2] / "tools" / "interop" / "timers_with_rocketmq.sh"
HOUR = 3_600_000
until = functools.partial(soon.until, looks=60_000)
pytestmark = pytest.mark.slow        # the jars of a broker, and a JVM for each question


def broker(path: Path, *steps: str, files: Mapping[str, object] = SMALL_FILES) -> dict[str, object]:
    done = subprocess.run([SCRIPT, path, *steps, "--", *settings(dict(files))], capture_output=True, text=True,
                          timeout=FETCH_SECONDS)
    if done.returncode == 77:
        pytest.skip(f"the real broker cannot run here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def opened(path: Path, now: int) -> MessageStore:
    io = ProbeIo(keep_bytes=False)
    io.set_clock(now, 0)
    return MessageStore.open(path, compat="5.x", _io=io, **SMALL_FILES)


def visible(store: MessageStore) -> list[str]:
    return [bytes(m.body).decode() for m in store.scan("T")]


@pytest.mark.parametrize("ending", ["closed", "halt"])
def test_takes_over_what_a_broker_has_left(ending: str, tmp_path: Path) -> None:
    path, due = tmp_path / "store", int(time.time() * 1000) + HOUR
    steps = [f"put:a:{due}", f"put:gone:{due}", f"put:b:{due + 2500}", f"recall:gone:{due}", f"put:c:{due + HOUR}", "taken:5"]
    answer = broker(path, *steps, *(["halt"] if ending == "halt" else []))
    assert answer["visible"] == "" and answer["offset"] == 5
    with opened(path, due - 2000) as store:
        assert store._timer.wheel.state()[0] == 5 and visible(store) == []
    with opened(path, due + 4000) as store:
        assert store.wait_for_message("T", 0, 1, 60)
        until(lambda: store._timer.wheel.state()[0] == 1)
        assert visible(store) == ["a", "b"]
        assert store.put("T", b"d", deliver_at=due + HOUR, properties={"UNIQ_KEY": "d"}).queue_offset == 5
        until(lambda: store._timer.wheel.state()[0] == 2)
    # The broker comes back: nothing is delivered twice, and what waits waits.
    assert broker(path, "taken:6") == {"visible": "a b", "offset": 6, "pending": 2, "topics": 2}
    with opened(path, due + HOUR + 2000) as store:
        assert store.wait_for_message("T", 0, 3, 60)
        assert visible(store) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("lost", [None, "timerwheel", "timerlog"])
def test_a_broker_takes_over_what_this_library_has_left(lost: str | None, tmp_path: Path) -> None:
    path, now = tmp_path / "store", int(time.time() * 1000)
    with opened(path, now - 2 * HOUR) as store:
        store.put("T", b"early", deliver_at=now - 2 * HOUR + 3000)
        until(lambda: store._timer.wheel.state()[0] == 1)
    with opened(path, now - HOUR) as store:
        assert store.wait_for_message("T", 0, 0, 60)
        offsets = [store.put("T", name, deliver_at=due).offset for name, due in
                   ((b"a", now - 1_800_000), (b"gone", now - 1_800_000), (b"b", now - 1_700_000), (b"later", now + HOUR))]
        store.recall(store.recall_handle(offsets[1]))
        until(lambda: store._timer.wheel.position()[2] == 6)
    if lost == "timerwheel":
        (path / "timerwheel").unlink()
    elif lost == "timerlog":
        for file in (path / "timerlog").iterdir():
            file.unlink()
        with opened(path, now - HOUR) as store:         # made again from the queue, for the broker as well
            until(lambda: store._timer.wheel.position()[2] == 6)
            assert store._timer.wheel.state()[0] == 5
    answer = broker(path, "wait:3")
    assert answer["visible"] == "early a b" and answer["offset"] == 6 and answer["topics"] == 4
    with opened(path, now + HOUR + 2000) as store:
        assert store.wait_for_message("T", 0, 3, 60)
        assert visible(store) == ["early", "a", "b", "later"]
