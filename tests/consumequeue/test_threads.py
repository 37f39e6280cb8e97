"""Readers beside the dispatcher: all that is published is whole and in order, whatever happens to descriptors."""
import threading

from rmq_store.queues.consumequeue._time import offset_by_time

COUNT = 500


def run(*bodies):
    """Runs the bodies in threads; raises what any of them raised."""
    errors = []

    def guard(body):
        try:
            body()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=guard, args=(b,)) for b in bodies]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


def test_readers_see_whole_entries_in_order(table_at):
    """Files of 10 entries and two descriptors: files are made, opened and closed all the time."""
    table = table_at(fd_max=2)
    queues = [(b"T%d" % i, 0) for i in range(6)]
    for topic, queue_id in queues:
        table.put(topic, queue_id, 0, 100, 0, 1, 0)
    table.publish()
    done = threading.Event()

    def dispatch():
        try:
            for i in range(1, COUNT):
                for topic, queue_id in queues:
                    table.put(topic, queue_id, i * 100, 100, i, 1, i)
                if i % 7 == 0:
                    table.publish()
            table.publish()
        finally:
            done.set()

    def read():
        at = dict.fromkeys(queues, 0)
        while True:
            last = done.is_set()
            for queue in queues:
                end = table.offsets(*queue)[1]
                while at[queue] < end:
                    units = table.read(*queue, at[queue], 32)
                    assert units == [(i * 100, 100, i) for i in range(at[queue], at[queue] + len(units))] and units
                    at[queue] += len(units)
            if last:
                assert set(at.values()) == {COUNT}
                return

    def sync():
        while not done.is_set():
            table.sync()
        table.sync()

    run(dispatch, read, read, sync)
    assert table.open_files <= 2


def test_queues_are_found_while_the_directory_grows(table_at):
    table = table_at()
    made = []

    def make(part):
        for i in range(2000):
            table.add_queue(b"T%d" % (i % 1000), part * 2 + i // 1000)
            made.append((b"T%d" % (i % 1000), part * 2 + i // 1000))

    def look():
        while len(made) < 4000:
            for queue in made[-20:]:
                assert table.offsets(*queue) == (0, 0, 0)

    run(lambda: make(0), lambda: make(1), look)
    assert len(table.queues()) == len(set(table.queues())) == 4000


def test_search_by_time_beside_the_dispatcher(table_at):
    table = table_at()
    table.put(b"T", 0, 0, 100, 0, 1, 0)
    table.publish()
    done = threading.Event()

    def dispatch():
        try:
            for i in range(1, COUNT):
                table.put(b"T", 0, i * 100, 100, i, 1, i)
                table.publish()
        finally:
            done.set()

    def search():
        while not done.is_set():
            end = table.offsets(b"T", 0)[1]
            for want in range(1, end, max(end // 5, 1)):
                assert offset_by_time(table, b"T", 0, want, lambda at, _: at // 100 + 1) == want - 1

    run(dispatch, search)
