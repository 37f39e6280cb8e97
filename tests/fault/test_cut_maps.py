"""Files of an open store are cut under its maps: with guard_maps the calls that need what is gone raise, and the process lives.

Each case is a process of its own: what goes wrong here is its death by SIGBUS.
"""
import errno
import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rmq_store import MessageStore

ROOT = Path(__file__).parents[2]

HEAD = """
    import errno, faulthandler, glob, json, os, sys
    from rmq_store import MessageStore
    from rmq_store.errors import DurabilityError, WriteFailed
    faulthandler.enable()
    root = sys.argv[1]
    small = {"segment_size_bytes": 1 << 20, "index_slots": 2000, "index_entries_max": 20_000,
             "consumequeue_file_size_bytes": 20_000}

    def opened(**more):
        return MessageStore.open(root, **{**small, "guard_maps": True, **more})

    def refused(call):
        try:
            result = call()
        except OSError as e:
            return type(e).__name__, e.errno
        return repr(result)

    def bodies(n, size=10_000):
        return [b"%06d" % i * (size // 6) for i in range(n)]

    def log_files():
        return sorted(glob.glob(root + "/commitlog/*"))

    def closed(store):
        try:
            store.close()
        except DurabilityError as e:
            return type(e).__name__
        return "closed"

    out = {}
"""


def run(tmp_path, code):
    """What the code put into `out`; the exit status where it is not 0."""
    text = textwrap.dedent(HEAD) + textwrap.dedent(code) + "\nprint(json.dumps(out))\n"
    done = subprocess.run([sys.executable, "-c", text, str(tmp_path / "s")], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


READ = """
    with opened({more}) as store:
        sent = bodies(250)
        for i, body in enumerate(sent):
            store.put("T", body, keys="k%d" % i)
        assert store.wait_dispatched(30) and store.flush()
        os.truncate(log_files()[0], 4096)
        out["get"] = refused(lambda: store.get("T", 0, 5, 1))
        out["scan"] = refused(lambda: list(store.scan("T", 0)))
        out["at"] = refused(lambda: store.message_at(store.raw_entry("T", 0, 6)[0]))
        out["key"] = refused(lambda: store.query_key("T", "k7"))
        out["walk"] = refused(lambda: list(store.scan()))
        out["time"] = refused(lambda: store.offset_by_time("T", 0, 1))
        out["later"] = bytes(store.get("T", 0, 240, 1).messages[0].body) == sent[240]
        out["put"] = store.put("T", b"on it goes", wait=True).status == 0
        out["errno"] = store.stats()["errno"]
"""


@pytest.mark.parametrize("more", ["", "write_path='pool', flush_backend='fdatasync'"], ids=["mmap", "pool"])
def test_readers_get_an_error_and_the_store_goes_on(tmp_path, more):
    found = run(tmp_path, READ.format(more=more))
    gone = ["OSError", errno.EIO]
    assert found == {"get": gone, "scan": gone, "at": gone, "key": gone, "walk": gone, "time": gone, "later": True, "put": True,
                     "errno": 0}


def test_without_it_the_process_dies(tmp_path):
    """What is proved here is that the cases above meet the signal."""
    code, said = run(tmp_path, READ.format(more="guard_maps=False"))
    assert code == -signal.SIGBUS and "Bus error" in said


def test_what_lies_before_the_cut_is_read(tmp_path):
    found = run(tmp_path, """
        store = opened()
        for body in bodies(20, 600):
            store.put("T", body)
        assert store.wait_dispatched(30)
        os.truncate(log_files()[0], 4096)
        out["whole"] = [bytes(m.body) for m in store.get("T", 0, 0, 4)] == bodies(20, 600)[:4]
        out["cut"] = refused(lambda: store.get("T", 0, 5, 4))
        closed(store)
        """)
    assert found["whole"] and found["cut"] == ["OSError", errno.EIO]


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("many", [False, True], ids=["put", "put_many"])
def test_a_put_into_what_is_gone_fences(tmp_path, mode, many):
    found = run(tmp_path, f"""
        store = opened(flush_mode={mode!r}, segment_prezero="off")
        store.put("T", b"first")
        store.flush()
        assert store.wait_dispatched(30)
        os.truncate(log_files()[0], 4096)
        body = b"x" * 30_000
        call = (lambda: store.put_many("T", [body] * 3)) if {many} else (lambda: store.put("T", body))
        wrote = store._position("wrote")
        out["put"] = refused(call)
        out["published"] = store._position("wrote") - wrote
        out["again"] = refused(lambda: store.put("T", b"small"))
        out["flush"] = refused(store.flush)
        out["read"] = [bytes(m.body) for m in store.get("T", 0, 0)] == [b"first"]
        out["errno"] = store.stats()["errno"]
        out["close"] = closed(store)
        """)
    gone = ["WriteFailed", errno.EIO]
    assert found == {"put": gone, "published": 0, "again": gone, "flush": gone, "read": True, "errno": errno.EIO,
                     "close": "WriteFailed"}


def test_a_flush_of_what_a_reader_found_gone_fails(tmp_path):
    found = run(tmp_path, """
        store = opened(flush_interval_ms=3_600_000, flush_interval_max_ms=3_600_000)
        for body in bodies(10):
            store.put("T", body)
        assert store.wait_dispatched(30)
        os.truncate(log_files()[0], 4096)
        out["get"] = refused(lambda: store.get("T", 0, 8))
        out["flush"] = refused(store.flush)
        out["close"] = closed(store)
        """)
    assert found["get"] == ["OSError", errno.EIO]
    assert found["flush"] == ["SyncFailed", errno.EIO] and found["close"] == "SyncFailed"


def test_the_dispatcher_fences(tmp_path):
    """It is held back by the confirm offset until the file is cut."""
    found = run(tmp_path, """
        store = opened(duplication_enabled=True)
        for body in bodies(10):
            store.put("T", body)
        os.truncate(log_files()[0], 4096)
        store.confirm(store._position("wrote"))
        out["dispatched"] = refused(lambda: store.wait_dispatched(30))
        out["put"] = refused(lambda: store.put("T", b"x"))
        out["entries"] = store.max_offset("T", 0)
        out["close"] = closed(store)
        """)
    gone = ["WriteFailed", errno.EIO]
    assert found == {"dispatched": gone, "put": gone, "entries": 0, "close": "WriteFailed"}


def test_the_index(tmp_path):
    found = run(tmp_path, """
        store = opened()
        for i in range(10):
            store.put("T", b"%d" % i, keys="k%d" % i)
        assert store.wait_dispatched(30) and len(store.query_key("T", "k3")) == 1
        os.truncate(glob.glob(root + "/index/*")[0], 0)
        out["query"] = refused(lambda: store.query_key("T", "k3"))
        out["get"] = len(store.get("T", 0, 0))
        store.put("T", b"x", keys="k")
        out["dispatched"] = refused(lambda: store.wait_dispatched(30))
        out["close"] = closed(store)
        """)
    assert found == {"query": ["OSError", errno.EIO], "get": 10, "dispatched": ["WriteFailed", errno.EIO],
                     "close": "WriteFailed"}


def test_a_view_from_before_the_cut_reads_zeros_and_its_checksum_tells(tmp_path):
    found = run(tmp_path, """
        store = opened()
        for body in bodies(10):
            store.put("T", body)
        assert store.wait_dispatched(30)
        view = store.get("T", 0, 8).messages[0]
        out["before"] = view.body_crc_ok
        os.truncate(log_files()[0], 4096)
        out["after"] = view.body_crc_ok, bytes(view.body) == bytes(len(view.body))
        del view
        out["get"] = refused(lambda: store.get("T", 0, 8))
        closed(store)
        """)
    assert found == {"before": True, "after": [False, True], "get": ["OSError", errno.EIO]}


@pytest.mark.parametrize("more", ["", "write_path='pool', flush_backend='fdatasync'"], ids=["mmap", "pool"])
def test_threads_meet_it_at_once_while_files_come(tmp_path, more):
    """The handler walks its table while maps are added to it; every reader has the error or the message, never zeros."""
    found = run(tmp_path, f"""
        import threading
        store = opened({more})
        for body in bodies(120):
            store.put("T", body)
        store.flush()
        assert store.wait_dispatched(30)
        done, wrong, met = threading.Event(), [], set()

        def read(k):
            while not (done.is_set() and k in met):
                got = refused(lambda: store.get("T", 0, 20 + k, 1).messages[0].queue_offset)
                if got == ("OSError", errno.EIO):
                    met.add(k)
                elif got != repr(20 + k):
                    wrong.append(got)

        readers = [threading.Thread(target=read, args=(k,)) for k in range(4)]
        for t in readers:
            t.start()
        os.truncate(log_files()[0], 4096)
        for body in bodies(400):
            store.put("U", body)
        done.set()
        for t in readers:
            t.join()
        out["wrong"] = wrong
        out["new"] = store.wait_dispatched(30) and [bytes(m.body) for m in store.scan("U", 0)] == bodies(400)
        out["close"] = closed(store)
        """)
    assert found == {"wrong": [], "new": True, "close": "closed"}


def test_another_sigbus_is_the_former_handler_s(tmp_path):
    code, said = run(tmp_path, """
        import mmap
        store = opened()
        with open(root + "/mine", "w+b") as file:
            file.truncate(8192)
            mine = mmap.mmap(file.fileno(), 8192)
            file.truncate(0)
        mine[5000]
        """)
    assert code == -signal.SIGBUS and "Bus error" in said


def test_a_child_of_fork_has_an_answer_of_its_own(tmp_path):
    found = run(tmp_path, """
        store = opened()
        store.put("T", b"x", wait=True)
        pid = os.fork()
        if pid == 0:
            with MessageStore.open(root + "2", **small, guard_maps=True) as other:
                for body in bodies(5):
                    other.put("T", body)
                assert other.wait_dispatched(30)
                os.truncate(sorted(glob.glob(root + "2/commitlog/*"))[0], 4096)
                os._exit(7 if refused(lambda: other.get("T", 0, 3)) == ("OSError", errno.EIO) else 1)
        out["child"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out["close"] = closed(store)
        """)
    assert found == {"child": 7, "close": "closed"}


@pytest.mark.parametrize("more", ["", ", record_crc=True", ", compat='4.9'"], ids=["5.x", "with its crc", "4.9"])
def test_a_process_that_dies_inside_of_a_put_leaves_no_record(tmp_path, more):
    """It dies where the next page of the file is gone, within the properties: what makes it a record is not there yet."""
    code, said = run(tmp_path, f"""
        with MessageStore.open(root, segment_size_bytes=1 << 20, segment_prezero="off"{more}) as store:
            store.put("T", b"first", keys="k")
            assert store.wait_dispatched(30) and store.flush()
            os.truncate(log_files()[0], 4096)
            store.put("T", b"second", keys="k", properties={{"a": "y" * 9000}})
    """)
    assert code == -signal.SIGBUS, said
    log = tmp_path / "s" / "commitlog" / ("0" * 20)
    data = log.read_bytes()
    at = int.from_bytes(data[:4], "big")
    assert len(data) == 4096 and b"second" in data[at:]     # it had begun
    assert data[at:at + 8] == bytes(8)
    with open(log, "r+b") as f:
        f.truncate(1 << 20)
    with MessageStore.open(tmp_path / "s") as store:
        assert [bytes(m.body) for m in store.scan()] == [b"first"] and store.max_log_offset == at
        assert store.put("T", b"third").offset == at and store.wait_dispatched(30)
        assert [m.queue_offset for m in store.scan("T", 0)] == [0, 1]
