"""What a handler raises is seen: with its traceback where the program logs, and on standard error where it has not configured
logging. The record holds no frame, and so no message."""
import asyncio
import gc
import logging
import subprocess
import sys
import threading
import weakref

import pytest

from rmq_store import AsyncMessageStore, MessageStore
from tests.soon import until

SMALL = {"profile": "test", "delay": "store_only"}
PROGRAM = """
import logging, sys, threading
from rmq_store import MessageStore
exec(sys.argv[2])
with MessageStore.open(sys.argv[1], profile="test", delay="store_only") as store:
    for i in range(3):
        store.put("jobs", b"%d" % i)
    stop, calls = threading.Event(), 0
    def parse(message):
        global calls
        calls += 1
        if calls == 6:
            stop.set()
        raise KeyError("no such \\x1b[31m\\nERROR forged")
    with store.consumer("g", "jobs", max_retries=1) as consumer:
        consumer.run(parse, stop=stop)
"""


class Marked(Exception):
    pass


def failing(message, seen):
    marker = Marked("bad")
    seen.append(weakref.ref(marker))
    raise ValueError("outer") from marker


@pytest.mark.parametrize("kind", ["sync", "threads", "async"])
def test_a_failure_has_its_traceback_and_keeps_nothing(tmp_path, caplog, kind):
    seen = []

    def run():
        with MessageStore.open(tmp_path / "s", **SMALL) as store:
            store.put("T", b"x")
            stop = threading.Event()

            def handle(message):
                stop.set()
                failing(message, seen)

            with store.consumer("G", "T") as consumer:
                consumer.run(handle, stop=stop, concurrency=2 if kind == "threads" else 1)

    async def run_async():
        async with await AsyncMessageStore.open(tmp_path / "s", **SMALL) as store:
            await store.put("T", b"x")
            stop = asyncio.Event()

            async def handle(message):
                stop.set()
                await asyncio.sleep(0)
                failing(message, seen)

            async with await store.consumer("G", "T") as consumer:
                await consumer.run(handle, stop=stop)

    asyncio.run(run_async()) if kind == "async" else run()
    record = next(r for r in caplog.records if getattr(r, "event", "") == "MESSAGE_FAILED")
    for text in (logging.Formatter().format(record), logging.Formatter().formatException(record.exc_info)):
        places = [text.find(part) for part in ("Marked: bad", "direct cause", "in failing", "ValueError: outer")]
        assert -1 not in places, text
        assert "_Told" not in text
    assert record.exc_info[0] is ValueError and record.exc_info[2] is None and record.fields["failures"] == 1
    gc.collect()
    assert seen and {reference() for reference in seen} == {None}


def program(path, logs):
    ended = subprocess.run([sys.executable, "-c", PROGRAM, path / "s", logs], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


def test_without_logging_the_first_failure_and_each_dead_letter_reach_standard_error(tmp_path):
    said = program(tmp_path, "")
    assert said.count("failed to handle message") == 1 and said.count("goes to %DLQ%g") == 3
    assert said.count("in parse") == 1 and "\x1b" not in said and "\nERROR" not in said


@pytest.mark.parametrize("logs", [
    "logging.getLogger('rmq_store').addHandler(logging.NullHandler())", "logging.lastResort = None",
    "logging.getLogger('rmq_store').setLevel(logging.ERROR)", "logging.basicConfig(filename=sys.argv[1] + '.log')"])
def test_who_configures_logging_has_it_so(tmp_path, logs):
    assert program(tmp_path, logs) == ""


def test_a_dispatcher_and_a_check_that_fail_tell_where(tmp_path, caplog):
    def failing_dispatcher(batch):
        raise Marked

    def check(transaction):
        raise Marked

    with MessageStore.open(tmp_path / "s", transaction_timeout_ms=100, transaction_check_interval_ms=100, **SMALL) as store:
        store.add_dispatcher("d", failing_dispatcher)
        store.on_check("G", check)
        store.prepare("T", b"half", group="G")
        until(lambda: {"CHECK_FAILED", "DISPATCHER_STOPPED"} <= {getattr(r, "event", "") for r in caplog.records})
    for name, where in (("CHECK_FAILED", "in check"), ("DISPATCHER_STOPPED", "in failing_dispatcher")):
        record = next(r for r in caplog.records if getattr(r, "event", "") == name)
        assert where in logging.Formatter().format(record) and record.fields["error"] == "Marked"
