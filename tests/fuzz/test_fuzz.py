"""Damaged stores: every open and every read answers or raises a typed error, whatever stands in the files. A few cases here,
as many as fit into RMQ_FUZZ_SECONDS with `make fuzz`; RMQ_SEED names the run, and its cases can be repeated one by one.

The victims run in processes of their own (victim.py), so that a crash or a hang is a finding like any other.
"""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmq_store.base.io._io import ProbeIo
from tests.fuzz.campaign import BATCH, ROOT, minimise, run, scratch

SEED = os.environ.get("RMQ_SEED", "1")


@pytest.fixture
def room():
    with scratch() as place:
        yield Path(place) / "room"


def test_damaged_stores_answer_or_say_what_is_wrong(room):
    assert [str(found) for found in run("22", 39, 52, room)] == []


@pytest.mark.slow
def test_as_many_damaged_stores_as_time_allows(room):
    budget = float(os.environ.get("RMQ_FUZZ_SECONDS", "120"))
    begin, n, causes = time.monotonic(), 0, {}
    while time.monotonic() - begin < budget and len(causes) < 20:
        for found in run(SEED, n, n + BATCH // 10, room):
            causes.setdefault(found.cause, found)
        n += BATCH // 10
    print(f"{n} damaged stores, seed {SEED}")
    assert [f"{found}\n    {minimise(found, room)}" for found in causes.values()] == []


def test_the_judge_finds_what_no_store_may_do(room):
    room.mkdir()
    done = subprocess.run([sys.executable, "-m", "tests.fuzz.planted", room], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line for line in map(json.loads, done.stdout.splitlines()) if "finding" in line]
    assert [(line["planted"], line["finding"].partition(": [")[0]) for line in lines] == [
        ("writes", "a reader wrote: . changed, planted is new"), ("touches", "a reader wrote: checkpoint changed"),
        ("writes_through_a_link", "outside the store: files/text changed []"), ("writes_beside", "outside the store:  ['x']"),
        ("dies", "ends with -11"), ("sleeps", "hangs"), ("spins", "hangs"), ("raises", "untyped KeyError: 'x'"),
        ("names_no_path", "OSError(5, 'Input/output error') names no path"), ("says_nothing", "OSError says nothing"),
        ("eats_memory", "untyped MemoryError: "), ("loses", "planted: 1 of 451 whole messages are not readable in their queue")]


def test_a_case_is_the_same_each_time(tmp_path):
    """By seed and number, also when its damages are done one by one."""
    from tests.fuzz.cases import Base, build
    (tmp_path / "base" / "store" / "commitlog").mkdir(parents=True)
    for name in ("checkpoint", "commitlog/00000000000000000000", "lock"):
        (tmp_path / "base" / "store" / name).write_bytes(bytes(range(256)) * 16)
    base = Base("x", tmp_path / "base" / "store", {})
    for n in range(40):
        done = build("7", n, base, tmp_path / "a")
        assert done == build("7", n, base, tmp_path / "a") and done
        assert build("7", n, base, tmp_path / "a", {0}) == done[:1]


def test_the_judge_meets_a_read_behind_the_end(tmp_path):
    """What makes the cases worth something: a read of one byte too many ends the process."""
    path = tmp_path / "x"
    path.write_bytes(bytes(4096))
    code = f"""
import ctypes, os
from rmq_store.base.io._io import ProbeIo
io = ProbeIo()
at = io.mmap(os.open({str(path)!r}, os.O_RDONLY), 0, 4096, False)
print(ctypes.string_at(at + 4095, 1), flush=True)
ctypes.string_at(at + 4095, 2)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert done.stdout == b"b'\\x00'\n" and done.returncode < 0


def test_a_guarded_map_comes_and_goes_whole(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(bytes(5000))
    io = ProbeIo()
    fd = io.open(path, os.O_RDWR)
    for _ in range(100):
        at = io.mmap(fd, 0, 5000, True)
        io.munmap(at, 5000)
    with open("/proc/self/maps") as maps:
        assert not [line for line in maps if line.startswith(f"{at:x}-")]
    io.close(fd)
