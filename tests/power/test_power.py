"""Power cuts below real ext4 and XFS (see campaign.py): a few states here, RMQ_POWER_STATES of them (2,000) with
`make test-power`; RMQ_SEED chooses others. And the judge itself: it finds messages that were told durable too early, and a
disk that lies.

The campaign is a process of its own: it forks, and mounts what a dead test would leave.
"""
import fcntl
import json
import mmap
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.power.apart import apart
from tests.power.disk import FLUSH, HEAD, MARK, WRITE, Disk, Log, build, make_image, missing
from tests.power.facts import Facts
from tests.power.states import choose_cuts, make_states

ROOT = Path(__file__).parents[2]
SEED = os.environ.get("RMQ_SEED", "1")
STATES = os.environ.get("RMQ_POWER_STATES", "2000")
@pytest.fixture(scope="session")
def able():
    """This machine can mount such disks; else the test is skipped, with the reason."""
    why = missing()
    if why:
        pytest.skip(why)


def campaign(*arguments):
    """(exit code, its lines)."""
    done = subprocess.run([sys.executable, "-m", "tests.power.campaign", *map(str, arguments)], cwd=ROOT, capture_output=True,
                          text=True)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.root
@pytest.mark.crash
def test_some_states(able, memory_disk, tmp_path):
    code, lines = campaign("--states", 24, "--each", 4, "--seconds", 1, "--seed", SEED, "--dir", memory_disk,
                           "--kept", tmp_path)
    assert code == 0, [line["violations"] for line in lines if line.get("violations")]
    assert lines[-1]["states"] >= 24 and sum(line.get("acknowledged", 0) for line in lines) > 1000
    assert max(line.get("pending_max", 0) for line in lines) > 10, "the cuts meet nothing that was not flushed"


@pytest.mark.root
@pytest.mark.slow
def test_the_campaign(able):
    """Prints as it goes (-s); what failed is kept where the lines say."""
    done = subprocess.run([sys.executable, "-m", "tests.power.campaign", "--states", STATES, "--seed", SEED], cwd=ROOT)
    assert done.returncode == 0


@pytest.mark.root
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_what_is_told_too_early_is_found(able, memory_disk, tmp_path, kind):
    code, lines = campaign("--states", 4, "--each", 8, "--seconds", 1, "--scenario", "told-early", "--file-system", kind,
                           "--seed", SEED, "--dir", memory_disk, "--kept", tmp_path)
    found = [line for line in lines[:-1] if any("told durable, and not in the log" in w for w in line.get("violations", []))]
    assert code == 1 and found
    # The recording is kept, and shows the same again.
    code, again = campaign("--replay", found[0]["kept"], "--dir", memory_disk)
    assert code == 1 and first_cuts(again[0]) == first_cuts(found[0])


def first_cuts(line):
    """The violations that no recovery of another order has a part in."""
    return [wrong for wrong in line["violations"] if "to open" not in wrong and "verify" not in wrong]


@pytest.mark.root
def test_a_disk_that_lies_about_its_flushes_is_found(able, memory_disk, tmp_path):
    code, lines = campaign("--states", 6, "--each", 12, "--seconds", 1, "--scenario", "pool-fdatasync", "--lying",
                           "--seed", SEED, "--dir", memory_disk, "--kept", tmp_path)
    assert code == 1 and any(line.get("violations") or line.get("unmountable") for line in lines[:-1])


# ---- the disk

@pytest.fixture
def disk(able, tmp_path):
    image = make_image(tmp_path / "image", "ext4", 64 << 20)
    with Disk(tmp_path / "disk", image, "ext4", tmp_path / "log", build(tmp_path)) as made:
        yield made


def read_log(disk):
    log = Log(disk.log)
    try:
        return [(record.kind, log.bytes_of(record)) for record in log.records]
    finally:
        log.close()


@pytest.mark.root
def test_the_log_has_the_order_of_writes_flushes_and_marks(able, tmp_path):
    image = make_image(tmp_path / "image", "ext4", 64 << 20)
    with Disk(tmp_path / "disk", image, "ext4", tmp_path / "log", build(tmp_path)) as disk:
        disk.marks.write_bytes(b"before\n")
        fd = os.open(disk.place / "file", os.O_CREAT | os.O_WRONLY)
        os.write(fd, b"x" * 8192)
        os.fsync(fd)
        os.close(fd)
        disk.marks.write_bytes(b"after\n")
    seen = read_log(disk)
    before, after = seen.index((MARK, b"before\n")), seen.index((MARK, b"after\n"))
    between = seen[before + 1:after]
    data = next(i for i, (kind, bytes_) in enumerate(between) if kind == WRITE and b"x" * 8192 in bytes_)
    assert (FLUSH, b"") in between[data + 1:], "a sync that returned has flushed what it wrote"


@pytest.mark.root
def test_the_disk_fails_when_it_is_told_to(disk):
    with open(disk.place / "file", "w+b", buffering=0) as file, mmap.mmap(-1, 4096) as page:
        fd = file.fileno()
        file.write(b"y" * 4096)
        os.fsync(fd)
        disk.control("fail-writes 1 0")
        os.pwrite(fd, b"z" * 4096, 0)
        with pytest.raises(OSError):
            os.fsync(fd)
        os.pwrite(fd, b"w" * 4096, 0)
        os.fsync(fd)
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)
        disk.control("fail-reads 100")
        with pytest.raises(OSError):
            os.preadv(fd, [page], 0)
        disk.control("fail-reads 0")
        os.preadv(fd, [page], 0)
        assert page[:] == b"w" * 4096


@pytest.mark.root
def test_what_is_under_way_is_covered_by_no_flush(able, tmp_path):
    """A write that is held when a flush begins comes behind it, in the log and so in the states."""
    image = make_image(tmp_path / "image", "ext4", 64 << 20)
    with Disk(tmp_path / "disk", image, "ext4", tmp_path / "log", build(tmp_path)) as disk:
        disk.control("hold 100 50")
        fd = os.open(disk.fuse / "disk", os.O_WRONLY)
        child = os.fork()
        if child == 0:
            os.pwrite(fd, b"held", (64 << 20) - 4096)
            os._exit(0)
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            os.fsync(fd)
        os.close(fd)
    seen = read_log(disk)
    at = seen.index((WRITE, b"held"))
    assert FLUSH in [kind for kind, _ in seen[:at]]


# ---- states, without a disk

def write_log(path, *records):
    with open(path, "wb") as file:
        for kind, offset, data in records:
            file.write(HEAD.pack(kind, len(data), offset) + data)
    return Log(path)


def test_states_hold_what_is_flushed_and_any_part_of_the_rest(tmp_path):
    log = write_log(tmp_path / "log", (WRITE, 0, b"a" * 512), (FLUSH, 0, b""), (MARK, 0, b'["opened", 7]\n'),
                    (WRITE, 512, b"b" * 1024), (WRITE, 0, b"c" * 512), (FLUSH, 0, b""), (WRITE, 0, b"d" * 512))
    seen = set()
    for seed in range(200):
        base = tmp_path / "base"
        base.write_bytes(bytes(2048))
        for state in make_states(base, log, Facts(), [3, 5], random.Random(seed), tmp_path):
            data = state.image.read_bytes()
            assert state.facts.end == 7
            seen.add((state.cut, state.pending, *(data[i:i + 1].decode() for i in (0, 512, 1024))))
            state.image.unlink()
    log.close()
    assert {s for s in seen if s[0] == 3} == {(3, 0, "a", "\0", "\0")}
    assert {s[2:] for s in seen if s[0] == 5} == {(a, b, c) for a in "ac" for b in "\0b" for c in "\0b"}


def test_cuts_are_where_much_is_pending(tmp_path):
    log = write_log(tmp_path / "log", *[(WRITE, 0, b"x"), (FLUSH, 0, b"")] * 20, *[(WRITE, 0, b"x")] * 30, (FLUSH, 0, b""))
    cuts = choose_cuts(log, 0, 100, random.Random(1))
    assert cuts == sorted(cuts) and cuts.count(70) > 30
    log.close()


# ---- a process of its own

def spin():
    while True:
        pass


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def test_apart_tells_how_it_ended():
    assert apart(len, [1, 2]).answer == 2
    assert "ZeroDivisionError" in apart(divmod, 1, 0).answer["raised"]
    assert "did not end" in apart(spin, seconds=0.2).died
    assert apart(os._exit, 3).died == "exit 3"
    assert apart(die).died == "signal 9"
    assert "MemoryError" in apart(bytes, 20 << 30).answer["raised"]
