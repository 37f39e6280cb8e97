"""doctor: each fact with its consequence and its cure; what is refused is found by doing it where it is refused."""
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rmq_store
from rmq_store import MessageStore
from rmq_store.base.io._io import ProbeIo
from rmq_store.cli.main import main
from rmq_store.config.load import resolve
from rmq_store.log.flush._uring import uring_probe
from rmq_store.upkeep.doctor import diagnosis
from rmq_store.upkeep.doctor.capability import Capability, probe
from tests.diagnosis.limited import little_memlock, no_io_uring, run

GIB = 1 << 30
ROOT = Path(__file__).parents[2]
DOCTOR = """
import json, sys, rmq_store
print(json.dumps(rmq_store.doctor(sys.argv[1], measure=False, **json.loads(sys.argv[2])).as_dict()))
"""


@pytest.fixture
def ring(tmp_path):
    refused = uring_probe(tmp_path)["setup"]
    if refused:
        pytest.skip(f"the kernel refuses a ring: {os.strerror(refused)}")


def healthy(**facts):
    uring = dict.fromkeys(("setup", "buffers", "files", "file", "write", "sync", "direct", "direct_write", "direct_sync",
                           "direct_durable"), 0)
    base = dict(path="/d", kernel="6.1", file_system="ext4", mount_point="/d", mount_options="rw", free=900 * GIB,
                total=1000 * GIB, memory=64 * GIB, memory_machine=64 * GIB, files=65536, memlock=-1, fallocate_reserves=True,
                uring={**uring, "align": 512, "flags": ()},
                uring_opcodes={"IORING_OP_WRITE": True, "IORING_OP_WRITE_FIXED": True, "IORING_OP_FSYNC": True})
    return Capability(**{**base, **facts})


def judged(capability, profile=None, **options):
    o = resolve(profile, options)
    return [item for rule in diagnosis._RULES for item in rule(capability, o, "/d/store")]


def test_nothing_is_left_behind_and_facts_are_there(tmp_path):
    found = rmq_store.doctor(tmp_path / "not" / "yet")
    c = found.capability
    assert c.path == str(tmp_path) and c.free > 0 and c.memory > 0 and c.file_system and c.kernel
    assert c.sync_reserved_s > 0 and c.sync_written_s > 0 and c.fallocate_reserves
    assert os.listdir(tmp_path) == []
    subjects = [i.subject for i in found.items]
    assert subjects[0] == "directory" and {"file system", "space", "syncs", "io_uring", "memory"} <= set(subjects)
    json.dumps(found.as_dict())


def test_a_seccomp_filter_is_found_and_named(tmp_path, ring):
    found = run(no_io_uring, DOCTOR, tmp_path, "{}")
    item = next(i for i in found["items"] if i["subject"] == "io_uring")
    assert item["level"] == "note" and "setup fails: Operation not permitted (a seccomp filter is active" in item["fact"]
    assert "allow io_uring_setup" in item["cure"] and found["capability"]["seccomp"] == "filter"
    found = run(no_io_uring, DOCTOR, tmp_path, json.dumps({"flush_backend": "io_uring", "write_path": "pool"}))
    assert [i["level"] for i in found["items"] if i["subject"] == "io_uring"] == ["finding"]


def test_little_memory_to_lock(tmp_path, ring):
    found = run(little_memlock, DOCTOR, tmp_path, json.dumps({"write_path": "pool"}))
    item = next(i for i in found["items"] if "registering memory fails" in i["fact"])
    assert "memlock limit 64.0 KiB" in item["fact"] and "raise the memlock limit" in item["cure"]


@pytest.mark.parametrize(("kind", "code", "words"), [
    ("ring_setup", errno.ENOSYS, "setup fails: Function not implemented (kernel"),
    ("ring_setup", errno.ENOMEM, "setup fails: Cannot allocate memory (memlock limit"),
    ("ring_write", errno.EIO, "write fails: Input/output error"),
    ("ring_sync", errno.EINVAL, "sync fails: Invalid argument"),
])
def test_a_refused_step_of_io_uring(tmp_path, ring, monkeypatch, kind, code, words):
    io = ProbeIo()
    io.fail(kind, 1, code, sticky=code == errno.ENOMEM)     # for that the kernel is asked again
    c = probe(tmp_path, io=io)
    c.seccomp = "off"
    item = next(i for i in judged(c) if i.subject == "io_uring")
    assert words in item.fact and item.cure
    if c.uring_opcodes:
        assert next(i for i in judged(c) if i.subject == "second opinion").level == "finding"


@pytest.mark.parametrize(("body", "fact", "cure"), [
    ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "it died of SIGILL", "pip install 'liburing<2026'"),
    ("raise ImportError('liburing.so: wrong ELF class')", "ImportError: liburing.so: wrong ELF class", "does not use it"),
])
def test_a_binding_that_does_not_run_here_takes_nothing_with_it(tmp_path, body, fact, cure):
    """Wheels of it were built with AVX-512 and die of an illegal instruction on a CPU without."""
    (tmp_path / "liburing.py").write_text(body)
    done = subprocess.run([sys.executable, "-m", "rmq_store", "doctor", str(tmp_path), "--no-measure", "--json"], check=False,
                          env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    item = next(i for i in json.loads(done.stdout)["items"] if i["subject"] == "second opinion")
    assert item["level"] == "note" and fact in item["fact"] and cure in item["cure"]


def test_a_file_system_in_memory(tmp_path):
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no tmpfs at /dev/shm")
    found = rmq_store.doctor("/dev/shm", measure=False)
    assert not found.healthy and "the next reboot deletes" in found.findings[0].consequence
    direct = [i.fact for i in found.items if i.subject == "direct I/O"]
    assert found.capability.uring["setup"] or direct[0].startswith("not here")
    assert rmq_store.doctor("/dev/shm", measure=False, profile="tmpfs").healthy


def test_a_healthy_place_has_no_findings():
    assert [i for i in judged(healthy()) if i.level == "finding"] == []


@pytest.mark.parametrize(("facts", "options", "subject", "cure"), [
    ({"writable": False, "write_error": errno.EROFS}, {}, "directory", "remount it read-write"),
    ({"writable": False, "write_error": errno.EACCES}, {}, "directory", "write permission"),
    ({"file_system": "overlay"}, {}, "file system", "mount a volume"),
    ({"file_system": "nfs4"}, {}, "file system", "a local disk"),
    ({"file_system": "btrfs"}, {}, "file system", "chattr +C"),
    ({"mount_options": "rw,barrier=0"}, {}, "mount options", "barrier=1"),
    ({"free": GIB}, {}, "space", "segment_size_bytes"),
    ({"used_pct": 91.0}, {}, "space", "make room"),
    ({"fallocate_error": errno.EOPNOTSUPP}, {}, "reserving space", "another file system"),
    ({"fallocate_error": errno.EDQUOT}, {}, "reserving space", "make room"),
    ({"fallocate_reserves": False}, {}, "reserving space", "ext4 or xfs"),
    ({"sync_reserved_s": 2e-3, "sync_written_s": 3e-4}, {"flush_mode": "sync", "segment_prezero": "off"}, "syncs", "window"),
    ({"memory": 64 << 20}, {"write_path": "pool"}, "memory", "pool_window_count"),
    ({"files": 128}, {}, "open files", "ulimit -n"),
    ({"uring": {"setup": errno.EPERM}, "io_uring_disabled": 2, "uring_opcodes": {}}, {"flush_backend": "io_uring"}, "io_uring",
     "kernel.io_uring_disabled=0"),
    ({"uring_opcodes": {"IORING_OP_WRITE": True}}, {}, "second opinion", "report this"),
])
def test_what_is_wrong_has_a_cure(facts, options, subject, cure):
    found = [i for i in judged(healthy(**facts), **options) if i.level == "finding"]
    assert [i.subject for i in found] == [subject] and cure in found[0].cure


@pytest.mark.parametrize(("facts", "subject"), [
    ({"device_limits": {"wbps": 1_000_000}}, "device limits"), ({"mount_options": "rw,data=journal"}, "mount options"),
    ({"file_system": "minix"}, "file system"), ({"uring_opcodes": None}, "second opinion")])
def test_what_is_worth_knowing_is_no_finding(facts, subject):
    assert [i.level for i in judged(healthy(**facts)) if i.subject == subject] == ["note"]


@pytest.mark.parametrize(("facts", "options", "fact"), [
    ({}, {}, "auto: fdatasync"), ({}, {"write_path": "pool"}, "auto: io_uring"),
    ({}, {"write_path": "pool", "uring_direct": "off"}, "auto: fdatasync"),
    ({"uring": {"setup": errno.EPERM}, "uring_opcodes": {}}, {"write_path": "pool"}, "auto: fdatasync"),
    ({}, {"flush_backend": "msync"}, "msync (keyword)")])
def test_the_back_end_that_a_store_would_get(facts, options, fact):
    assert [i.fact for i in judged(healthy(**facts), **options) if i.subject == "flush back end"] == [fact]


def test_huge_pages_that_are_not_to_be_had(monkeypatch):
    monkeypatch.setattr(diagnosis, "huge_pages", lambda: "/sys/x is [never]")
    options = {"write_path": "pool", "pool_hugepages": True}
    assert [i.fact for i in judged(healthy(), **options) if i.level == "finding"] == ["/sys/x is [never]"]
    assert not [i for i in judged(healthy(), write_path="pool") if i.level == "finding"]


def test_unwritten_blocks_are_explained():
    item = next(i for i in judged(healthy(sync_reserved_s=2e-3, sync_written_s=3e-4, commits_reserved=1.0, commits_written=0.0))
                if i.subject == "syncs")
    assert "2,000 µs on reserved blocks, 300 µs on written ones; journal commits a sync: 1.0 and 0.0" in item.fact


@pytest.mark.parametrize(("facts", "options", "told"), [
    ({}, {}, True), ({}, {"flush_mode": "sync"}, False), ({}, {"flush_mode": "sync", "segment_prezero": "off"}, True),
    ({}, {"segment_prezero": "full"}, False), ({"file_system": "xfs"}, {}, True), ({"file_system": "btrfs"}, {}, False)])
@pytest.mark.parametrize("backend", ["msync", "fdatasync", "auto"])
def test_what_a_failing_file_system_forgets_is_told_whatever_the_back_end(facts, options, told, backend):
    items = [i for i in judged(healthy(**facts), flush_backend=backend, **options) if i.subject == "never written blocks"]
    assert [i.level for i in items] == ["note"] * told and all("segment_prezero" in i.cure for i in items)


@pytest.mark.parametrize(("facts", "most", "levels"), [
    ({"files": 1024}, 65530, ["ok", "ok"]), ({"files": -1}, 65530, ["ok", "ok"]), ({"files": 200}, 65530, ["finding", "ok"]),
    ({"files": 1024}, 1100, ["ok", "finding"])])
def test_descriptors_and_maps_are_told_beside_the_limits(monkeypatch, facts, most, levels):
    monkeypatch.setattr(diagnosis, "maps", lambda: most)
    items = {i.subject: i for i in judged(healthy(**facts, total=200 * GIB)) if i.subject in ("open files", "mappings")}
    assert [items["open files"].level, items["mappings"].level] == levels
    assert "128 for files of the log" in items["open files"].fact and "a store uses up to" in items["open files"].fact
    assert f"vm.max_map_count is {most:,}, a store uses up to 1,200: one for each of the 200" in items["mappings"].fact


def test_a_store_that_was_not_closed(tmp_path):
    with MessageStore.open(tmp_path / "s", segment_size_bytes=1 << 20, index_enabled=False) as store:
        store.put("T", b"x")
        levels = {i.subject: i.level for i in rmq_store.doctor(tmp_path / "s", measure=False).items}
        assert levels["store"] == "note"
    assert "store" not in {i.subject for i in rmq_store.doctor(tmp_path / "s", measure=False).items}
    (tmp_path / "s" / "abort").touch()
    (tmp_path / "s" / "lock").write_bytes(b"lock")
    assert "store" in [i.subject for i in rmq_store.doctor(tmp_path / "s", measure=False).findings]


def test_a_directory_without_rights_leaves_io_uring_unknown():
    found = judged(healthy(writable=False, write_error=errno.EACCES, uring={"setup": 0, "buffers": 0, "files": 0,
                                                                            "file": errno.EACCES}))
    told = {i.subject: i for i in found}
    assert told["directory"].level == "finding"
    assert told["io_uring"].level == "note" and "not tried" in told["io_uring"].fact
    assert "flush_backend" not in told["io_uring"].cure


def test_the_command(tmp_path, capsys):
    code = main(["doctor", str(tmp_path), "--no-measure", "-o", "write_path=pool"])
    text = capsys.readouterr().out
    assert "file system: " in text and ("nothing to do" in text) == (code == 0)
    assert main(["doctor", str(tmp_path), "--no-measure", "--json"]) == code
    told = json.loads(capsys.readouterr().out)
    assert told["healthy"] == (code == 0) and told["capability"]["path"] == str(tmp_path)
    assert main(["doctor", str(tmp_path), "-o", "flush_mod=sync"]) == 64
    if os.access("/dev/shm", os.W_OK):
        assert main(["doctor", "/dev/shm", "--no-measure"]) == 1
