"""What works on a log in several directories beside the store itself: cleaning, manifests, repair, backup, copies, commands."""
import json
import os

import pytest

import rmq_store
from rmq_store import MessageStore, errors
from rmq_store.services.backup.source import Source
from rmq_store.services.integrity.repair import repair
from rmq_store.upkeep.doctor.diagnosis import doctor
from tests.dirs.conftest import SEGMENT, SIZES, numbers


def errors_of(several, **more):
    return [f for f in rmq_store.verify(several.root, **several.options(**more)) if f.severity != "note"]


def test_cleaning_takes_the_oldest_in_either_directory(two):
    two.fill(100)
    with two.open() as store:
        assert store.cleanable(0, files_max=3) == [0, SEGMENT, 2 * SEGMENT]
        done = store.clean(0, files_max=3, pace_ms=0)
        assert done.log_files == 3 and store.min_log_offset == 3 * SEGMENT
    found = two.files()
    assert min(found["a"]) == 4 and min(found["b"]) == 3
    with two.open() as store:
        assert numbers(store.scan("T", 0))[-1] == 99


def test_cleaning_stops_at_a_directory_that_cannot_be_written(two, monkeypatch, caplog):
    two.fill(100)
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **more: str(path) != str(two.logs[1]) and access(path, mode, **more))
    with two.open() as store:
        assert store.clean(0, pace_ms=0).log_files == 1 and store.clean(0, pace_ms=0).log_files == 0
        assert store.min_log_offset == SEGMENT
    told = [r.fields["file"] for r in caplog.records if r.event == "LOG_FILE_FIXED"]
    assert told == [str(two.logs[1] / f"{SEGMENT:020d}")]


def test_manifests_scrub_and_repair_know_the_directories(two):
    two.fill(100)
    rmq_store.scrub(two.root, make_manifests=True, **two.options())
    assert len(os.listdir(two.root / ".manifest")) >= 3
    assert errors_of(two) == []
    path = two.logs[1] / f"{SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    data[8000] ^= 0xFF
    path.write_bytes(data)
    assert [f.path for f in rmq_store.scrub(two.root, **two.options()).findings] == [str(path)]
    kinds = {f.kind: f.path for f in errors_of(two)}
    assert kinds["manifest_mismatch"] == str(path)
    done = repair(two.root, dry_run=False, open_store=MessageStore.open, **two.options())
    assert [s.path for s in done.steps if s.kind == "bridge"] == [str(path)] and done.left == []
    assert path.exists() and not (two.logs[0] / path.name).exists()
    with two.open() as store:
        assert len(numbers(store.scan("T", 0))) == 100 and store.max_offset("T", 0) == 100


def test_a_backup_and_a_copy_have_all_of_it(two, tmp_path):
    two.fill(100)
    with two.open() as store:
        for i in range(100, 130):
            store.put("T", i.to_bytes(4, "big") + bytes(3000), keys=f"k{i}")
        info = store.backup(tmp_path / "backups")
    with MessageStore.open(info.path, readonly=True) as store:
        assert numbers(store.scan("T", 0)) == list(range(130))
    result = rmq_store.copy_messages(two.root, tmp_path / "copy", source_options=two.options(),
                                     commitlog_path=f"{tmp_path}/c1,{tmp_path}/c2", **SIZES)
    assert result.copied == 130 and os.listdir(tmp_path / "c1") and os.listdir(tmp_path / "c2")
    assert len(Source(two.root, two.options()).parts()) == sum(map(len, two.files().values()))
    with pytest.raises(errors.ConfigError, match="or in it, where nothing is written"):
        rmq_store.copy_messages(two.root, tmp_path / "other", source_options=two.options(), commitlog_path=str(two.logs[1]))


def test_what_it_tells_of_its_disks(two):
    two.fill(10)
    with two.open() as store:
        info = store.runtime_info()
        each = [float(info[f"commitLogDiskRatio_{log}"]) for log in two.logs]
        assert float(info["commitLogDiskRatio"]) == min(each) and 0 <= min(each) <= 1
    with MessageStore.open(two.place / "one", **SIZES) as store:
        info = store.runtime_info()
        assert info[f"commitLogDiskRatio_{two.place}/one/commitlog"] == info["commitLogDiskRatio"]


def test_the_metric_has_each_directory(two):
    pytest.importorskip("prometheus_client")
    from rmq_store.metrics import StoreCollector

    with two.open() as store:
        (family,) = [f for f in StoreCollector(store).collect() if f.name == "rmq_store_log_disk_used_ratio"]
        assert [s.labels["directory"] for s in family.samples] == list(map(str, two.logs))


def test_the_doctor_names_what_is_missing(two):
    two.fill(10)
    said = doctor(two.root, measure=False, **two.options())
    assert not [v for v in said.items if v.subject == "log directories"]
    two.lose("b")
    (told,) = [v for v in doctor(two.root, measure=False, **two.options()).items if v.subject == "log directories"]
    assert str(two.logs[1]) in told.fact


def test_commands(two, rmqstore):
    two.fill(60)
    given = [part for name, value in two.options().items() for part in ("-o", f"{name}={value}")]
    code, out, err = rmqstore("verify", two.root, *given)
    assert code == 0, out + err
    code, out, err = rmqstore("get", two.root, "-t", "T", "-q", "0", "-i", "59", "--json", *given)
    assert code == 0 and json.loads(out.splitlines()[0])["queue_offset"] == 59, out + err
    code, out, err = rmqstore("readback", two.root, *given)
    assert code == 0 and sum('"t":"msg"' in line for line in out.splitlines()) == 60
    code, out, err = rmqstore("clean", two.root, "--hours", "0", "--files", "2", "--dry-run", *given)
    assert code == 0 and str(two.logs[0]) in out and str(two.logs[1]) in out
    two.lose("b")
    code, out, err = rmqstore("verify", two.root, *given)
    assert code != 0 and "log_directory" in out
    (two.place / "lines").write_text("x\n")
    code, out, err = rmqstore("put", two.root, two.place / "lines", "-t", "T", *given)
    assert code != 0 and str(two.logs[1]) in err and "mount the disk" in err
    code, out, err = rmqstore("get", two.root, "-t", "T", "-q", "0", "-i", "0", "--json", *given)
    assert code == 0 and out
