"""advise: every back end is measured in the directory, nothing is left there, and the proposal follows from the numbers."""
import errno
import json
import os

import pytest

import rmq_store
from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from rmq_store.cli.main import main
from rmq_store.config.load import resolve
from rmq_store.upkeep.doctor import advice
from rmq_store.upkeep.doctor.advice import Measured
from tests.crash import scenario
from tests.diagnosis.test_doctor import healthy


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """One short run for all tests."""
    place = tmp_path_factory.mktemp("advise")
    steps = []
    os.environ["RMQ_STORE_COMMITLOG_PATH"] = str(place / "somebody-elses")
    try:
        found = rmq_store.advise(place / "store", seconds=0.2, progress=steps.append)
    finally:
        del os.environ["RMQ_STORE_COMMITLOG_PATH"]
    return place, found, steps


def test_every_back_end_is_measured_and_nothing_is_left(measured):
    place, found, steps = measured
    assert os.listdir(place) == []      # not even where the environment of this process would put a store
    assert [m.name for m in found.measured] == ["msync (mmap)", "fdatasync (mmap)", "fdatasync (pool)", "io_uring (pool)"]
    assert {m.name for m in found.measured} == set(steps)
    for m in found.measured:
        assert m.refused or (m.sync_s > 0 and m.sync_p99_s >= m.sync_s and m.sync_rate > 0 and m.async_bytes > 0)
    assert not any(m.refused for m in found.measured[:3])


def test_the_proposal_is_a_profile_that_opens(measured, tmp_path, monkeypatch):
    _, found, _ = measured
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = found.write("mine")
    assert path == str(tmp_path / "rmq_store" / "profiles" / "mine.toml")
    o, same = resolve("mine"), resolve(None, found.options)
    assert all(o[n] == same[n] and o.origin(n) == "profile mine" for n in found.options)
    with MessageStore.open(tmp_path / "s", profile="mine", segment_size_bytes=1 << 20, index_enabled=False) as store:
        assert store.put("T", b"x", wait=True).status == 0
    with pytest.raises(FileExistsError):
        found.write("mine")
    with pytest.raises(errors.ConfigError, match="built in"):
        found.write("nvme")
    assert found.write(tmp_path / "deep" / "x.toml") == str(tmp_path / "deep" / "x.toml")


def test_the_command(tmp_path, capsys):
    out = tmp_path / "p.toml"
    assert main(["advise", str(tmp_path), "--seconds", "0.1", "--write", str(out)]) == 0
    text = capsys.readouterr().out
    assert "measuring fdatasync (pool) ..." in text and "a durable put of 1 KiB" in text and "based on profile" in text
    assert resolve(out)
    assert main(["advise", str(tmp_path), "--seconds", "0.1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["options"] and len(told["measured"]) == 4 and told["written"] is None
    assert main(["advise", str(tmp_path), "--seconds", "0"]) == 64
    assert sorted(os.listdir(tmp_path)) == ["p.toml"]


def test_a_profile_that_cannot_be_written_is_refused_before_the_measuring(tmp_path, monkeypatch, capsys):
    def measure(*args, **more):
        raise AssertionError("measured")

    monkeypatch.setattr("rmq_store.cli.advise.advise", measure)
    (tmp_path / "mine.toml").touch()
    (tmp_path / "file").touch()
    for target in ("nvme", str(tmp_path / "mine.toml"), str(tmp_path / "file" / "mine.toml")):
        assert main(["advise", str(tmp_path), "--write", target]) in (3, 64)
        assert "rmqstore advise: " in capsys.readouterr().err


def numbers(name, sync, rate, bandwidth, refused=""):
    path, backend = {"msync": ("mmap", "msync"), "fdatasync": ("pool", "fdatasync"), "io_uring": ("pool", "io_uring")}[name]
    return Measured(path, backend, refused, sync, sync and 2 * sync, rate, bandwidth)


def propose(*measured, **facts):
    return advice._propose("/d", healthy(**facts), list(measured))


def test_the_best_over_all_three_figures_wins():
    found = propose(numbers("msync", 2e-4, 1e4, 2e8), numbers("fdatasync", 2e-4, 3e4, 3e8),
                    numbers("io_uring", 1.9e-4, 6e4, 9e8))
    assert (found.options["write_path"], found.options["flush_backend"]) == ("pool", "io_uring")
    assert any("io_uring (pool): the best of them" in r for r in found.reasons)
    found = propose(numbers("msync", 1e-4, 4e4, 4e8), numbers("fdatasync", 2e-4, 3e4, 3e8),
                    numbers("io_uring", None, None, None, "forbidden here"))
    assert (found.options["write_path"], found.options["flush_backend"]) == ("mmap", "msync")
    assert not any(n.startswith("pool_") for n in found.options)
    assert "io_uring (pool): not here: forbidden here" in found.reasons
    assert resolve(None, found.options)


@pytest.mark.parametrize(("sync", "facts", "profile"), [
    (50e-6, {}, "nvme"), (400e-6, {}, "ssd"), (2e-3, {}, "cloud_block"), (9e-3, {}, "hdd"),
    (50e-6, {"device_limits": {"wiops": 500}}, "cloud_block"), (50e-6, {"file_system": "tmpfs"}, "tmpfs"),
    (50e-6, {"memory": 256 << 20}, "container")])
def test_the_profile_to_begin_with(sync, facts, profile):
    found = propose(numbers("fdatasync", sync, 1e4, 2e8), sync_written_s=sync, sync_reserved_s=sync, **facts)
    assert found.profile == profile and resolve(None, found.options)
    assert any(r.startswith(f"profile {profile}: ") for r in found.reasons)


def test_zeros_ahead_only_where_they_gain():
    dear = propose(numbers("fdatasync", 3e-4, 1e4, 2e8), sync_reserved_s=1e-3, sync_written_s=3e-4)
    assert "segment_prezero" not in dear.options and any("3.3 times" in r and "worth it" in r for r in dear.reasons)
    unclear = propose(numbers("fdatasync", 3e-4, 1e4, 2e8), sync_reserved_s=3e-4, sync_written_s=3e-4)
    assert "segment_prezero" not in unclear.options
    same = propose(numbers("fdatasync", 3e-4, 1e4, 2e8), sync_reserved_s=3e-4, sync_written_s=3e-4, commits_reserved=0.0)
    assert same.options["segment_prezero"] == "off"


def test_a_back_end_that_fails_is_told_and_the_others_go_on(tmp_path, monkeypatch):
    opened = MessageStore.open

    def open_or_not(path, **options):
        if options["flush_backend"] == "msync":
            raise errors.SyncFailed(5, "msync", path)
        return opened(path, **options)

    monkeypatch.setattr(MessageStore, "open", open_or_not)
    found = rmq_store.advise(tmp_path, seconds=0.1)
    assert "errno 5" in found.measured[0].refused and found.measured[1].sync_s
    assert os.listdir(tmp_path) == []


def test_a_directory_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(advice, "probe", lambda path, measure: healthy(writable=False, write_error=30))
    with pytest.raises(OSError) as error:
        rmq_store.advise(tmp_path, seconds=1)
    assert error.value.errno == 30


@pytest.mark.skipif(not scenario.RING_HERE, reason="the kernel refuses a ring")
def test_what_every_store_meets_is_said_once(tmp_path, monkeypatch, caplog):
    opened = MessageStore.open

    def without_memory_to_lock(path, **options):
        io = ProbeIo(keep_bytes=False)
        io.fail("ring_buffers", 1, errno.ENOMEM, sticky=True)
        return opened(path, _io=io, **options)

    monkeypatch.setattr(MessageStore, "open", without_memory_to_lock)
    with caplog.at_level("WARNING", "rmq_store"):
        found = rmq_store.advise(tmp_path, seconds=0.1)
        assert found.measured[3].sync_s
        assert [r.event for r in caplog.records if r.event == "BUFFERS_REFUSED"] == ["BUFFERS_REFUSED"]
        with MessageStore.open(tmp_path / "s", flush_backend="io_uring", segment_size_bytes=1 << 20):
            pass
        assert [r.event for r in caplog.records].count("BUFFERS_REFUSED") == 2      # others say it as ever
