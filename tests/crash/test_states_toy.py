"""The power-cut explorer on a toy store: nothing to find in the correct one, and each planted mistake is found."""
import errno
import random

import pytest

from rmq_store.base.io._io import Call, ProbeIo
from tests.crash.disk import Disk, read_directory
from tests.crash.states import Scratch, acknowledge_early, explore, without
from tests.crash.toy import Toy, messages, recover

pytestmark = pytest.mark.crash


def run(root, *bugs, mapped=False, count=3, spoil=None):
    """A run of the toy: its trace. spoil(probe) sets rules first; an OSError ends the run, as it fences a store."""
    probe = ProbeIo()
    toy = Toy(probe, str(root), *bugs, mapped=mapped)
    if spoil:
        spoil(probe)
    try:
        for i, message in enumerate(messages(count)):
            toy.put(*message)
            if i == 1:
                toy.checkpoint()
    except OSError:
        pass
    toy.close()
    return probe.trace()


def judge_for(*bugs):
    def judge(image, notes):
        acked = [note[1:] for note in notes]
        try:
            found = recover(image, *bugs)
        except ValueError as e:
            return f"recovery raised {e}"
        if found[:len(acked)] != acked:
            return "acknowledged message lost"
        if found != messages(len(found)):
            return "message invented"
        return None
    return judge


def explored(root, trace, *bugs, per_cut=2000):
    return explore(Disk(root), trace, judge_for(*bugs), per_cut=per_cut)


@pytest.mark.parametrize("mapped", [False, True])
def test_a_correct_store_has_no_bad_state(tmp_path, mapped):
    report = explored(tmp_path, run(tmp_path, mapped=mapped))
    assert report.states > 30 and report.cuts >= 8, report
    assert not report.violations, report


@pytest.mark.parametrize(("bug", "mapped", "wrong"), [
    ("ack_first", False, "lost"), ("ack_first", True, "lost"), ("body_crc", False, "invented"),
    ("no_checkpoint_sync", False, "recovery raised"), ("no_dir_sync", False, "lost"), ("wrong_msync_range", True, "lost"),
])
def test_each_planted_mistake_is_found(tmp_path, bug, mapped, wrong):
    report = explored(tmp_path, run(tmp_path, bug, mapped=mapped, count=5 if mapped else 3), bug)
    assert report.violations and all(wrong in v for v in report.violations), report


def fail_second_sync(probe):
    probe.fail("fdatasync", 2, errno.EIO)


def test_a_sync_that_is_tried_again_after_eio_lies(tmp_path):
    report = explored(tmp_path, run(tmp_path, "retry_sync", spoil=fail_second_sync))
    assert report.violations and all("lost" in v for v in report.violations), report


def test_giving_up_after_eio_does_not(tmp_path):
    report = explored(tmp_path, run(tmp_path, spoil=fail_second_sync))
    assert not report.violations, report


@pytest.mark.parametrize("bugs", [(), ("ignore_short",)])
def test_short_writes(tmp_path, bugs):
    report = explored(tmp_path, run(tmp_path, *bugs, spoil=lambda probe: probe.fail("pwrite", 2, short=True)), *bugs)
    assert bool(report.violations) == bool(bugs), report


def test_faults_planted_into_a_recorded_run_are_found(tmp_path):
    trace = run(tmp_path)
    early = acknowledge_early(trace, lambda note: note[0] == "ack", lambda call: call.kind == "pwrite" and "/log" in call.path)
    for broken in (early, without(trace, "sync_dir"), without(trace, "fdatasync")):
        assert explored(tmp_path, broken).violations


def test_the_model_agrees_with_the_directory(tmp_path):
    """Otherwise a store into a map was not announced, or a call went around the table."""
    for mapped in (False, True):
        root = tmp_path / str(mapped)
        root.mkdir()
        disk = Disk(root)
        for call in run(root, mapped=mapped):
            disk.feed(call)
        assert disk.current() == read_directory(root)


def test_scratch_writes_what_was_read(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/f").write_bytes(b"x" * 700 + bytes(4000))
    (tmp_path / "a/empty").touch()
    image = read_directory(tmp_path)
    with Scratch(tmp_path) as scratch:
        assert read_directory(scratch.write(image)) == image


# ---- the model itself, call by call

def call(kind, fd=3, path=None, target=None, offset=0, length=0, result=0, flags=0, begin=0, data=None):
    return Call(kind, fd, path, target, offset, length, result, flags, begin, 0, False, data, None)


class Script:
    """Feeds a disk by hand; each call begins when the one before has ended."""

    def __init__(self, content=None):
        self.disk = Disk("/d", content)

    def __call__(self, kind, **more):
        more.setdefault("begin", self.disk.number)
        for key in ("path", "target"):
            if key in more:
                more[key] = f"/d/{more[key]}"
        self.disk.feed(call(kind, **more))
        return self

    def write(self, data, offset=0, kind="pwrite", **more):
        return self(kind, data=data, offset=offset, length=len(data), result=len(data), **more)

    def states(self, limit=10000):
        return {tuple(sorted(s.items())) for s in self.disk.states(limit, random.Random(1))}

    def values(self, path="f"):
        return {dict(s).get(path, "absent") for s in self.states()}


def with_file(content=b"old"):
    return Script({"f": content})("open", path="f")


def test_unsynced_sector_holds_any_of_its_versions():
    s = with_file().write(b"new").write(b"NEW")
    assert s.values() == {b"old", b"new", b"NEW"}
    assert s("fdatasync").values() == {b"NEW"}


def test_sectors_are_independent():
    s = with_file(b"a" * 1024).write(b"b" * 1024)
    assert s.values() == {x * 512 + y * 512 for x in (b"a", b"b") for y in (b"a", b"b")}


def test_a_sync_covers_only_what_was_there_when_it_began():
    s = with_file().write(b"one")
    begin = s.disk.number
    s.write(b"two")
    assert s("fdatasync", begin=begin).values() == {b"one", b"two"}


def test_msync_covers_its_range():
    s = with_file(b"a" * 1024).write(b"b" * 1024, kind="map_store")
    assert s("msync", offset=512, length=512).values() == {b"a" * 512 + b"b" * 512, b"b" * 1024}


def test_a_failed_sync_loses_what_it_covered_until_it_is_written_again():
    s = with_file().write(b"new")("fdatasync", result=-5)("fdatasync")
    assert s.values() == {b"old", b"new"}
    assert s.write(b"new")("fdatasync").values() == {b"new"}


def test_length_and_data_are_independent():
    assert with_file(b"").write(b"abc").values() == {b"", b"\0\0\0", b"abc"}
    assert with_file(b"abc")("ftruncate", length=1).values() == {b"abc", b"a", b"a\0\0"}
    assert with_file(b"abc")("ftruncate", length=1)("fsync").values() == {b"a"}


def test_names():
    s = Script()("open", path="f", flags=64).write(b"x")("fsync")
    assert s.values() == {"absent", b"x"}
    assert s("sync_dir", path="").values() == {b"x"}
    s("rename", path="f", target="g")
    assert s.states() == {(("f", b"x"),), (("g", b"x"),)}
    s("sync_dir", path="")
    assert s("unlink", path="g").states() == {(("g", b"x"),), ()}


def test_replacing_by_rename_is_atomic():
    s = Script({"f": b"old"})("open", path="t", flags=64).write(b"new")("fsync")("rename", path="t", target="f")
    assert s.states() == {(("f", b"old"),), (("f", b"old"), ("t", b"new")), (("f", b"new"),)}


def test_a_name_needs_its_directory():
    s = Script()("mkdir", path="d")("open", path="d/f", flags=64)("sync_dir", path="d")
    assert s.states() == {(), (("d", None), ("d/f", b""))}
    assert s("sync_dir", path="").states() == {(("d", None), ("d/f", b""))}


def test_a_rename_into_another_directory_is_made_durable_there():
    s = Script({"a": None, "b": None, "a/f": b"x"})("rename", path="a/f", target="b/f")
    before, after = (("a", None), ("a/f", b"x"), ("b", None)), (("a", None), ("b", None), ("b/f", b"x"))
    assert s("sync_dir", path="a").states() == {before, after}
    assert s("sync_dir", path="b").states() == {after}


def ring(kind, data=b"new", flags=0, fd=3):
    return {"kind": kind, "fd": fd, "flags": flags, **({"data": data, "length": len(data)} if kind == "ring_write" else {})}


def test_linked_ring_sync_covers_the_write_before_it():
    s = with_file()(**ring("ring_write", flags=4))(**ring("ring_sync"))("ring_submit")
    write, sync = s.disk.number - 3, s.disk.number - 2
    assert s.values() == {b"old", b"new"}
    s("ring_reap", begin=write, result=3)
    assert s.values() == {b"old", b"new"}
    assert s("ring_reap", begin=sync, result=0).values() == {b"new"}


def test_unlinked_ring_sync_covers_nothing_of_its_batch():
    s = with_file()(**ring("ring_write"))(**ring("ring_sync"))("ring_submit")
    write, sync = s.disk.number - 3, s.disk.number - 2
    assert s("ring_reap", begin=write, result=3)("ring_reap", begin=sync, result=0).values() == {b"old", b"new"}


def test_hard_linked_ring_sync_after_a_short_write_covers_nothing_of_it():
    s = with_file()(**ring("ring_write", flags=8))(**ring("ring_sync"))("ring_submit")
    write, sync = s.disk.number - 3, s.disk.number - 2
    assert s("ring_reap", begin=write, result=1)("ring_reap", begin=sync, result=0).values() == {b"old", b"new"}


def test_dsync_ring_write_is_durable_when_it_is_reaped():
    s = with_file()(**ring("ring_write", flags=0x10000))("ring_submit")
    assert s("ring_reap", begin=s.disk.number - 2, result=3).values() == {b"new"}
