"""A queue against a plain list, through any order of puts, publishes, crashes, restarts, truncations and destruction."""
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_store.queues.consumequeue._owner import QueueTableOwner
from rmq_store.queues.consumequeue.loader import load_queues
from tests.consumequeue.queue_logs import entries

STEPS = st.lists(st.one_of(
    st.tuples(st.just("put"), st.integers(1, 30)), st.tuples(st.just("publish"), st.just(0)),
    st.tuples(st.just("crash"), st.just(0)), st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("truncate"), st.integers(0, 60)), st.tuples(st.just("min"), st.integers(0, 60)),
    st.tuples(st.just("destroy"), st.just(0))), max_size=14)


def opened(root, ext_file_size, thorough):
    table = QueueTableOwner(str(root / "q"), ext_dir=str(root / "x"), tmp_dir=str(root), file_size=200,
                            ext_file_size=ext_file_size, fd_max=3)
    load_queues(table)
    table.recover(thorough)
    table.add_queue(b"T", 0)
    return table


@settings(max_examples=120, deadline=None)
@given(steps=STEPS, ext_file_size=st.sampled_from([0, 100]))
def test_a_queue_is_a_list(steps, ext_file_size):
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        table = opened(root, ext_file_size, False)
        put, published, low = [], 0, 0      # (physical, tags) of each entry; how many are published; the first valid one
        at, log_begin = 0, 0
        for step, n in steps:
            if step == "put":
                for _ in range(n):
                    table.put(b"T", 0, at, 10, at % 7, at, len(put))
                    put.append((at, at % 7))
                    at += 10
            elif step == "publish":
                table.publish()
                published = len(put)
            elif step == "crash":
                table = opened(root, ext_file_size, True)
                found = table.offsets(b"T", 0)[1]   # what was written without being published may have survived
                assert published <= found <= len(put)
                del put[found:]
                published = found
                table.correct_min(log_begin)
            else:
                table.publish()
                if step == "restart":
                    table = opened(root, ext_file_size, False)
                    table.correct_min(log_begin)
                elif step == "truncate":
                    put = [e for e in put if e[0] < n * 10]
                    table.truncate(n * 10)
                    low = min(low, len(put))
                elif step == "min":
                    log_begin = max(log_begin, n * 10)
                    table.correct_min(log_begin)
                    low = sum(p < log_begin for p, _ in put)
                    at = max(at, log_begin)
                else:
                    table.destroy(b"T", 0)
                    put, low = [], 0
                published = len(put)
            low = min(low, published)
            assert table.offsets(b"T", 0)[:2] == (low, published)
            units = entries(table, b"T", 0)
            if ext_file_size:
                tags = [table.read_ext(b"T", 0, u[2])[0] for u in units]
            else:
                tags = [u[2] for u in units]
            assert list(zip((u[0] for u in units), tags, strict=True)) == put[low:published]
        assert table.gaps == 0
