"""Several Python threads put together: each message has a place of its own, and all of them are there, whatever rolls."""
import shutil
import tempfile
import threading
from pathlib import Path

import pytest

from rmq_store import MessageStore

SMALL = {"segment_size_bytes": 1 << 16, "consumequeue_file_size_bytes": 400, "index_slots": 10, "index_entries_max": 40}


def together(*calls):
    """Runs each call in a thread of its own, begun at once; raises what the first failing one raised."""
    problems = []
    gate = threading.Barrier(len(calls))

    def run(call):
        try:
            gate.wait(30)
            call()
        except BaseException as e:
            problems.append(e)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not any(t.is_alive() for t in threads)
    if problems:
        raise problems[0]


@pytest.fixture
def in_memory():
    """A directory where making a file costs nothing, if there is one: threads meet at file ends more often."""
    directory = tempfile.mkdtemp(prefix="rmq-threads-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    yield Path(directory)
    shutil.rmtree(directory)


@pytest.mark.parametrize("write_path", ["mmap", "pool"])
def test_a_file_is_made_once_however_many_wait_for_it(in_memory, write_path):
    """Goal: the file that one thread has just rolled into is not made again for another that also waited for it; that one would
    take its name, and what was acknowledged in it would be gone. Method: files of three messages, twelve threads, many rounds.
    """
    options = {"write_path": write_path, "segment_size_bytes": 4096, "message_size_max_bytes": 4000, "flush_deadline_ms": 2000,
               "pool_window_size_bytes": 4096, "index_enabled": False, "consumequeue_file_size_bytes": 20000}
    for turn in range(8 if write_path == "mmap" else 2):
        root = in_memory / str(turn)
        with MessageStore.open(root, **options) as store:
            acknowledged = []

            def produce(k, store=store, acknowledged=acknowledged):
                for i in range(500):
                    body = (b"%d-%d" % (k, i)).ljust(1300)
                    acknowledged.append((store.put("T", body, queue_id=k).offset, body))

            together(*(lambda k=k: produce(k) for k in range(12)))
        with MessageStore.open(root, **options) as store:
            found = [(m.offset, bytes(m.body)) for m in store.scan()]
        assert found == sorted(acknowledged)
        shutil.rmtree(root)
