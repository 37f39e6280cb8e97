"""Goal: any thread may query and one may sync while another puts and rolls: no key is missed, nothing is unmapped early.

Method: one thread puts keys over many small files and says after each how far it is; readers ask for keys at or below that
and must get exactly them. Loops end by counts, not by time.
"""
import threading

import pytest

FOREVER = 1 << 62
TOPIC = b"T"


@pytest.mark.parametrize("records, entries", [(1500, 7), (6000, 500), (6000, 20_000)])
def test_queries_and_syncs_while_keys_are_put(make, records, entries):
    index = make(64, entries)
    done = [0]
    failures = []
    stop = threading.Event()

    def put():
        for i in range(1, records + 1):
            index.put(TOPIC, b"k%d" % i, b"all", i, 1_000_000)
            done[0] = i

    def ask(step):
        turn = 0
        while not stop.is_set():
            low = done[0]
            if low == 0:
                continue
            turn += step
            wanted = low - turn % low
            found, _, last = index.query(TOPIC, b"k%d" % wanted, 4, 0, FOREVER)
            newest = index.query(TOPIC, b"all", 3, 0, FOREVER)[0]
            if found != [wanted] or last < low or not newest or newest[0] < low or newest != sorted(newest, reverse=True):
                failures.append((wanted, found, last, newest, low))
                return

    def sync():
        ends = [0]
        while not stop.is_set():
            ends.append(index.sync(all=len(ends) % 2 == 0))
            if ends[-1] not in (0, 1_000_000):
                failures.append(ends[-1])

    readers = [threading.Thread(target=t) for t in (lambda: ask(0), lambda: ask(7919), sync)]
    writer = threading.Thread(target=put)
    for t in readers:
        t.start()
    writer.start()
    writer.join()
    stop.set()
    for t in readers:
        t.join()
    assert failures == []
    assert index.file_count == -(-2 * records // (entries - 1))
    assert index.query(TOPIC, b"k17", 64, 0, FOREVER)[0] == [17]
