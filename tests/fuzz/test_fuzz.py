"""Damaged stores: every open and every read answers or raises a typed error, whatever stands in the files. A few cases here,
as many as fit into RMQ_FUZZ_SECONDS with `make fuzz`; RMQ_SEED names the run, and its cases can be repeated one by one.

Each batch runs in a process of its own (victim.py), so that a crash is a finding like any other.
"""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmq_store.io._io import ProbeIo

ROOT = Path(__file__).parents[2]
SEED = os.environ.get("RMQ_SEED", "1")
BATCH = 500


def findings(seed: str, begin: int, end: int, room: Path) -> list[str]:
    """What cases [begin, end) of this seed found. A process that dies is a finding of the case it was at; the next goes on."""
    found = []
    while begin < end:
        command = [sys.executable, "-m", "tests.fuzz.victim", "--seed", seed, "--begin", str(begin), "--end", str(end), "--dir",
                   str(room)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        what = {line["case"]: f"{line['base']}: {line['damage']}" for line in lines if "damage" in line}
        found += [f"seed {seed}, case {line['case']}, {what[line['case']]}: {line['finding']}" for line in lines
                  if "finding" in line]
        if done.returncode == 0:
            break
        if not lines:
            raise AssertionError(done.stderr)
        last = lines[-1]["case"]
        found.append(f"seed {seed}, case {last}, {what[last]}: ended with {done.returncode}\n{done.stderr[-3000:]}")
        begin = last + 1
    return found


def test_damaged_stores_answer_or_say_what_is_wrong(memory_disk):
    assert findings("1", 0, 54, memory_disk) == []


@pytest.mark.slow
def test_as_many_damaged_stores_as_time_allows(memory_disk):
    budget = float(os.environ.get("RMQ_FUZZ_SECONDS", "120"))
    begin, n, found = time.monotonic(), 0, []
    while time.monotonic() - begin < budget and len(found) < 20:
        found += findings(SEED, n, n + BATCH, memory_disk)
        n += BATCH
    print(f"{n} damaged stores, seed {SEED}")
    assert found == []


def test_the_judge_meets_a_read_behind_the_end(tmp_path):
    """What makes the cases worth something: a read of one byte too many ends the process."""
    path = tmp_path / "x"
    path.write_bytes(bytes(4096))
    code = f"""
import ctypes, os
from rmq_store.io._io import ProbeIo
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
