"""Are the files of log and queues there, without a gap and at their length? Of an open store, and from outside."""
import os
import threading

import pytest

from rmq_store import MessageStore, verify
from rmq_store.opened.tasks import _check_log

SMALL = {"segment_size_bytes": 1 << 14, "consumequeue_file_size_bytes": 200, "index_enabled": False, "clean_queue_pace_ms": 0,
         "consumequeue_ext_enabled": True, "consumequeue_ext_file_size_bytes": 200}


@pytest.fixture
def store(tmp_path):
    with MessageStore.open(tmp_path / "s", **SMALL) as s:
        for i in range(60):
            s.put("T", bytes(2000), queue_id=i % 2, tags="a")
        s.flush()
        assert s.wait_dispatched(30)
        yield s


def outside(store):
    return list(verify(store.path, files_only=True, **SMALL))


def moved(store, part, number):
    """Takes one file of a row away; returns its path and where it is meanwhile."""
    directory = f"{store.path}/{part}"
    name = sorted(os.listdir(directory))[number]
    os.rename(f"{directory}/{name}", f"{store.path}/away")
    return f"{directory}/{name}", f"{store.path}/away"


def test_nothing_is_wrong(store):
    assert store.stats()["log_files"] > 5 and store.check_self() == outside(store) == []


@pytest.mark.parametrize(("part", "kind"), [("commitlog", "log_gap"), ("consumequeue/T/1", "queue_file"),
                                            ("consumequeue_ext/T/0", "queue_file")])
def test_a_gap(store, part, kind):
    path, away = moved(store, part, 1)
    try:
        assert store.check_self() == outside(store)
        (found,) = store.check_self()
        assert (found.kind, found.path, found.expected) == (kind, os.path.dirname(path), os.path.basename(path))
        assert os.path.basename(path) in found.detail
        if kind == "log_gap":
            assert (found.offset, found.size) == (1 << 14, 1 << 14)
    finally:
        os.rename(away, path)


@pytest.mark.parametrize("number", [0, -1])
def test_an_end_of_the_log_is_missed_by_who_knows_it(store, number):
    used = {f"{n * (1 << 14):020d}" for n in range(store.stats()["log_files"])}
    name = sorted(used)[number]
    os.rename(f"{store.path}/commitlog/{name}", f"{store.path}/away")
    try:
        (found,) = store.check_self()
        assert (found.kind, found.expected, found.size) == ("log_gap", name, 1 << 14)
    finally:
        os.rename(f"{store.path}/away", f"{store.path}/commitlog/{name}")
    assert store.check_self() == []


@pytest.mark.parametrize(("part", "kind", "severity"), [("commitlog", "log_file", "corrupt"),
                                                        ("consumequeue/T/0", "queue_file", "finding")])
def test_a_file_of_another_length(store, part, kind, severity, rmqstore):
    path, away = moved(store, part, 0)      # a copy is cut: a mapped file that is cut would kill the process
    with open(away, "rb") as whole, open(path, "wb") as cut:
        cut.write(whole.read()[:100])
    try:
        (found,) = store.check_self()
        assert (found.kind, found.severity, found.path, found.found) == (kind, severity, path, 100)
        code, out, _ = rmqstore("verify", store.path, "--files", *(f"-o{k}={v}" for k, v in SMALL.items()))
        assert code == (4 if severity == "corrupt" else 1) and path in out
    finally:
        os.replace(away, path)
    assert rmqstore("verify", store.path, "--files", *(f"-o{k}={v}" for k, v in SMALL.items()))[0] == 0


def test_the_control_thread_says_what_it_finds_of_the_log(store, caplog):
    _check_log(store, threading.Event())
    assert not caplog.records
    path, away = moved(store, "commitlog", 2)
    try:
        _check_log(store, threading.Event())
    finally:
        os.rename(away, path)
    (record,) = caplog.records
    assert record.event == "FILES_ODD" and record.fields["kind"] == "log_gap" and os.path.basename(path) in record.getMessage()


def test_what_comes_and_goes_is_not_taken_for_a_gap(store):
    """Files are made and deleted at both ends while somebody looks: each look is right."""
    stop, failed = threading.Event(), []

    def change():
        try:
            while not stop.is_set():
                for i in range(40):
                    store.put("T", bytes(2000), queue_id=i % 2)
                store.flush()
                store.wait_dispatched(30)
                store.clean(0, pace_ms=0)
        except BaseException as error:
            failed.append(error)

    changer = threading.Thread(target=change)
    changer.start()
    found = [store.check_self() for _ in range(150)]
    while store.min_log_offset == 0 and not failed:
        found.append(store.check_self())
    stop.set()
    changer.join()
    assert not failed and [f for f in found if f] == []
