"""Manifests and scrubbing: every byte of a sealed file is covered, and a manifest never outlives what it describes."""
import errno
import json
import shutil
import threading
from types import SimpleNamespace

import pytest

import rmq_store
from rmq_store import MessageStore, errors
from rmq_store.base.io._io import IoTable, ProbeIo
from rmq_store.base.io.files import ControlFiles
from rmq_store.cli.verify import rate
from rmq_store.services.integrity import manifest, sealing
from rmq_store.services.integrity.repair import repair
from tests.images import take_image

SMALL = {"segment_size_bytes": 1 << 17, "index_slots": 100, "index_entries_max": 1000}


def fill(root, count=1500, until=None, **options):
    """A store of several files; `until` files of it are sealed when it is closed."""
    with MessageStore.open(root, **SMALL | {"manifest_interval_ms": 1} | options) as s:
        s.put_many("T", [b"x" * 300] * count)
        s.flush()
        if until is not None:
            wait(lambda: len(manifest.listed(str(root))) >= until)


def wait(done):
    event = threading.Event()
    for _ in range(6000):
        if done():
            return
        event.wait(0.01)
    raise AssertionError("it does not happen")


def starts(root):
    return [int(p.name) for p in sorted((root / "commitlog").iterdir())]


def flip(root, offset):
    path = root / "commitlog" / f"{offset // (1 << 17) * (1 << 17):020d}"
    data = bytearray(path.read_bytes())
    data[offset % (1 << 17)] ^= 1
    path.write_bytes(data)


def test_sealed_files_get_one_and_java_sees_none_of_it(tmp_path):
    root = tmp_path / "s"
    fill(root, until=4)
    assert manifest.listed(str(root)) == starts(root)[:-1]
    made = manifest.read(str(root), 0)
    assert (made.start, made.size, made.block_size, len(made.sums)) == (0, 1 << 17, 65536, 2)
    assert sorted(p.name for p in (root / "commitlog").iterdir()) == [f"{s:020d}" for s in starts(root)]
    assert list(rmq_store.verify(root)) == []


@pytest.mark.parametrize("place", [5, 40, 100, 70000, (1 << 17) - 1])
def test_any_bit_of_a_sealed_file_is_covered(tmp_path, place):
    root = tmp_path / "s"
    fill(root, until=4)
    flip(root, (1 << 17) + place)
    found = rmq_store.scrub(root, bytes_per_s=None).findings
    assert [(f.kind, f.offset, f.size) for f in found] == [("manifest_mismatch", (1 << 17) + place // 65536 * 65536, 65536)]
    assert "manifest_mismatch" in {f.kind for f in rmq_store.verify(root)}
    assert "manifest_mismatch" not in {f.kind for f in rmq_store.verify(root, manifests=False)}


def test_a_scrub_goes_on_where_it_stopped(tmp_path):
    root = tmp_path / "s"
    fill(root, until=4)

    class Stop(Exception):
        pass

    def stop(what, done, total):
        if done == 2:
            raise Stop

    with pytest.raises(Stop):
        rmq_store.scrub(root, bytes_per_s=None, resume=True, progress=stop)
    result = rmq_store.scrub(root, bytes_per_s=None, resume=True)
    assert (result.resumed_at, result.files) == (2 << 17, 2)
    assert rmq_store.scrub(root, bytes_per_s=None, resume=True).resumed_at is None       # through: the next one begins anew
    with pytest.raises(Stop):
        rmq_store.scrub(root, bytes_per_s=None, resume=True, progress=stop)
    assert rmq_store.scrub(root, bytes_per_s=None).files == 4


@pytest.mark.parametrize("text", ['{"next_offset": 1e400}', '{"next_offset": -1e400}', '{"next_offset": NaN}',
                                  "[" * 100_000], ids=lambda t: t[:24])
def test_a_state_that_is_no_place_begins_anew(tmp_path, text):
    root = tmp_path / "s"
    fill(root, until=4)
    (root / ".manifest" / "scrub.json").write_text(text)
    assert rmq_store.scrub(root, bytes_per_s=None, resume=True).files == 4


def test_nothing_behind_a_link_is_deleted_or_written(tmp_path, caplog):
    root, beside = tmp_path / "s", tmp_path / "beside"
    fill(root, until=4)
    (root / ".manifest").rename(beside)
    (root / ".manifest").symlink_to(beside)
    (beside / f"{1 << 40:020d}").write_bytes((beside / f"{0:020d}").read_bytes())    # stale, and not the store's to judge
    (beside / "scrub.json").write_text("{}")
    before = {p.name: p.read_bytes() for p in beside.iterdir()}
    with MessageStore.open(root, **SMALL | {"manifest_interval_ms": 1}) as s:
        s.put("T", b"x")
        wait(lambda: "MANIFEST_FAILED" in {getattr(r, "event", "") for r in caplog.records})
    said = [r.fields for r in caplog.records if getattr(r, "event", "") == "FOREIGN_FILE_SKIPPED"]
    assert [fields["file"] for fields in said] == [str(root / ".manifest")]
    for more in ({"resume": True}, {"make_manifests": True}):
        with pytest.raises(OSError, match="is a symbolic link"):
            rmq_store.scrub(root, bytes_per_s=None, **more)
    assert rmq_store.scrub(root, bytes_per_s=None).findings == []
    assert list(rmq_store.verify(root)) == []
    flip(root, (1 << 17) + 100)
    assert repair(root, dry_run=False, open_store=MessageStore.open).left == []
    assert {p.name: p.read_bytes() for p in beside.iterdir()} == before


def test_a_scrub_may_write_nothing_or_make_what_is_missing(tmp_path):
    root = tmp_path / "s"
    fill(root, manifest_enabled=False)
    assert rmq_store.scrub(root, bytes_per_s=None).findings == [] and not (root / ".manifest").exists()
    flip(root, (1 << 17) + 500)
    result = rmq_store.scrub(root, bytes_per_s=None, make_manifests=True)
    assert {f.kind for f in result.findings} == {"body_crc"} and result.manifests_made == 3
    assert manifest.listed(str(root)) == [0, 2 << 17, 3 << 17]      # what does not read well is not given a good name


def test_scrub_of_an_open_store(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        s.put_many("T", [b"x" * 300] * 1500)
        s.flush()
        assert s.scrub(bytes_per_s=None).files == 4
        flip(tmp_path / "s", 700)
        assert s.scrub(bytes_per_s=None).findings
    with pytest.raises(errors.StoreClosed):
        s.scrub()


def test_a_manifest_goes_with_what_it_describes(tmp_path):
    root = tmp_path / "s"
    fill(root, until=4)
    flip(root, (3 << 17) + 700)             # recovery cuts here: files 3 and 4 are written anew
    (root / "abort").write_bytes(b"")
    with MessageStore.open(root, **SMALL) as s:
        assert s.cut_bytes > 0
        s.put_many("T", [b"y" * 300] * 900)
    assert manifest.listed(str(root)) == [0, 1 << 17, 2 << 17]
    assert [f.kind for f in rmq_store.verify(root) if f.kind != "salvaged"] == []
    fill(root, count=1, until=len(starts(root)) - 1)
    assert [f.kind for f in rmq_store.verify(root) if f.kind != "salvaged"] == []


def test_a_damaged_manifest_is_said_and_made_again(tmp_path):
    root = tmp_path / "s"
    fill(root, until=4)
    path = root / ".manifest" / f"{1 << 17:020d}"
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    assert [f.kind for f in rmq_store.verify(root)] == ["manifest_damaged"]
    for hostile in (b"", b"RMQM", data[:-3], bytes(100), bytes(data[:32]) + b"\xff" * 8 + bytes(data[40:])):
        path.write_bytes(hostile)
        assert [f.kind for f in rmq_store.verify(root)] == ["manifest_damaged"]
    fill(root, count=1, until=4)
    assert list(rmq_store.verify(root)) == []


@pytest.mark.parametrize("kind", ["open", "pwrite", "fsync", "rename", "sync_dir", "mkdir"])
def test_a_failed_manifest_harms_nobody(tmp_path, kind, caplog):
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=io, **SMALL | {"manifest_interval_ms": 1}) as s:
        io.fail(kind, 1, errno.EIO, path=".manifest" if kind != "sync_dir" else "/s/.manifest", sticky=True)
        s.put_many("T", [b"x" * 300] * 1500)
        s.flush()
        wait(lambda: "could not make a manifest" in caplog.text)
        assert s.put("T", b"goes on", wait=True).status == 0
        io.clear()
        wait(lambda: len(manifest.listed(s.path)) >= 4)
    assert list(rmq_store.verify(tmp_path / "s")) == []


def test_a_file_that_cannot_be_read_keeps_no_other_from_its_manifest(tmp_path, caplog):
    """It is said once, by its path, and tried again."""
    io = ProbeIo(keep_bytes=False)
    bad = tmp_path / "s/commitlog" / f"{0:020d}"
    with MessageStore.open(tmp_path / "s", _io=io, **SMALL | {"manifest_interval_ms": 1}) as s:
        io.fail("pread", 1, errno.EIO, path=f"commitlog/{0:020d}", sticky=True)
        s.put_many("T", [b"x" * 300] * 1500)
        s.flush()
        wait(lambda: len(manifest.listed(s.path)) >= 3)
        assert 0 not in manifest.listed(s.path)
        assert caplog.text.count("could not make a manifest") == 1 and f"manifest for {bad}: " in caplog.text
        io.clear()
        wait(lambda: 0 in manifest.listed(s.path))


def test_what_cannot_be_dropped_keeps_no_file_from_its_manifest(tmp_path, caplog):
    root = tmp_path / "s"
    fill(root, manifest_enabled=False)
    (root / "commitlog" / f"{0:020d}").unlink()
    with MessageStore.open(root, **SMALL | {"manifest_interval_ms": 1}) as s:
        wait(lambda: manifest.listed(s.path))
        (root / ".manifest" / f"{0:020d}").mkdir()
        s.put_many("T", [b"x" * 300] * 1500)
        s.flush()
        wait(lambda: len(manifest.listed(s.path)) >= 7)
        assert caplog.text.count("could not make a manifest") == 1


def test_a_listing_that_fails_ends_no_thread(tmp_path, caplog, monkeypatch):
    fails, listed = [OSError(errno.EMFILE, "planned")], manifest.listed
    monkeypatch.setattr(manifest, "listed", lambda root: listed(root) if not fails else fail(fails.pop()))

    def fail(error):
        raise error

    fill(tmp_path / "s", until=4)
    assert caplog.text.count("could not make a manifest") == 1 and "planned" in caplog.text


def test_where_none_can_be_written_no_file_is_read_for_nothing(tmp_path, caplog, monkeypatch):
    read, looks, listed, make = [], [], manifest.listed, manifest.make
    monkeypatch.setattr(manifest, "listed", lambda root: looks.append(root) or listed(root))
    monkeypatch.setattr(manifest, "make", lambda *args: read.append(args[1]) or make(*args))
    monkeypatch.setattr(sealing, "AGAIN", 1e9)
    io = ProbeIo(keep_bytes=False)
    with MessageStore.open(tmp_path / "s", _io=io, **SMALL | {"manifest_interval_ms": 1}) as s:
        io.fail("open", 1, errno.ENOSPC, path=".manifest", sticky=True)
        s.put_many("T", [b"x" * 300] * 1500)
        s.flush()
        wait(lambda: read)
        seen = len(looks)
        wait(lambda: len(looks) > seen + 5)
    assert read == [0] and caplog.text.count("could not make a manifest") == 1


def test_whatever_call_is_the_last_a_manifest_is_whole_or_not_there(tmp_path):
    root = tmp_path / "s"
    fill(root, manifest_enabled=False)
    for n in range(1, 30):
        copy = tmp_path / f"c{n}"
        take_image(root, copy)
        io = ProbeIo(keep_bytes=False)
        io.freeze("mutate", n)
        rmq_store.scrub(copy, bytes_per_s=None, make_manifests=True, _io=io)
        assert list(rmq_store.verify(copy)) == []
        shutil.rmtree(copy)
        if not io.frozen:
            break
    assert n > 5


def test_the_command(tmp_path, rmqstore):
    root = tmp_path / "s"
    fill(root, manifest_enabled=False)
    code, out, _ = rmqstore("scrub", root, "--rate", "0", "--make-manifests")
    assert code == 0 and "read 4 sealed files" in out and "made 4 manifests" in out
    flip(root, 99)
    code, out, _ = rmqstore("scrub", root, "--rate", "0", "--json")
    assert code == 4 and json.loads(out.splitlines()[0])["kind"] == "manifest_mismatch"


@pytest.mark.parametrize("sealed", [True, False])
def test_a_scrub_is_paced(tmp_path, monkeypatch, sealed):
    """Also where there are no manifests: by a clock of the test's, every byte read takes its time, and nothing else does."""
    root = tmp_path / "s"
    fill(root, until=4 if sealed else None, manifest_enabled=sealed)
    slept = []
    monkeypatch.setattr("rmq_store.services.integrity.sealing.time",
                        SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append))
    assert rmq_store.scrub(root, bytes_per_s=1 << 17).bytes == 4 << 17
    assert sum(slept) == pytest.approx(4.0) and len(slept) >= 4


@pytest.mark.parametrize("command", ["scrub", "verify"])
@pytest.mark.parametrize("bad", ["-1", "nan", "inf"])
def test_what_is_no_rate(tmp_path, rmqstore, command, bad):
    root = tmp_path / "s"
    fill(root, count=1)
    code, out, err = rmqstore(command, root, f"--rate={bad}")
    assert (code, out) == (64, "") and f"--rate {float(bad)!r}: give MiB per second, 0 for no limit" in err
    assert (rate(1e-9), rate(2), rate(0), rate(None)) == (1, 2 << 20, None, None)


@pytest.mark.parametrize("bad", [0, -1, "64", 1.5, float("nan"), True])
def test_a_rate_is_a_number_of_bytes(tmp_path, bad):
    fill(tmp_path / "s", count=1)
    for look in (rmq_store.scrub, lambda *args, **how: list(rmq_store.verify(*args, **how))):
        with pytest.raises(ValueError, match=f"bytes_per_s is {bad!r}: give bytes a second, 1 or more, or None"):
            look(tmp_path / "s", bytes_per_s=bad)


def test_manifests_of_files_that_were_cleaned_go(tmp_path):
    root = tmp_path / "s"
    fill(root, until=4)
    (root / "commitlog" / ("0" * 20)).unlink()
    fill(root, count=1, until=0)
    with MessageStore.open(root, **SMALL | {"manifest_interval_ms": 1}):
        wait(lambda: manifest.listed(str(root))[0] == 1 << 17)


def test_round_trip(tmp_path):
    files = ControlFiles(IoTable())
    data = bytes(range(256)) * 700
    made = manifest.make(lambda at, n: data[at:at + n], 4096, len(data), lambda n: None)
    manifest.write(files, str(tmp_path), made)
    again = manifest.read(str(tmp_path), 4096)
    assert again == made and list(manifest.compare(again, lambda at, n: data[at:at + n], lambda n: None)) == []
    short = data[:-1]
    assert [at for at, *_ in manifest.compare(again, lambda at, n: short[at:at + n], lambda n: None)] == [131072]
    assert manifest.read(str(tmp_path), 0) is None


def test_repair_takes_a_damaged_manifest_away(tmp_path):
    root = tmp_path / "s"
    fill(root, until=4)
    path = sorted((root / ".manifest").iterdir())[0]
    damaged = path.read_bytes()[:-1] + b"?"
    path.write_bytes(damaged)
    result = repair(root, dry_run=False, open_store=MessageStore.open)
    assert result.left == [] and not path.exists()
    assert (root / ".salvage" / f"{path.name}.manifest").read_bytes() == damaged


def test_restore_reads_no_more_than_a_copy_can_have(tmp_path):
    root = tmp_path / "s"
    fill(root, until=4)
    (root / ".salvage").mkdir()
    with open(root / ".salvage" / f"{0:020d}", "wb") as file:
        file.truncate(1 << 40)
    result = repair(root, dry_run=False, restore=True, open_store=MessageStore.open)
    assert [s.kind for s in result.steps] == ["none"] and "longer than a log file" in result.steps[0].detail
