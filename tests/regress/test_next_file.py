"""Several producers at the end of a file, and the thread that makes the next one."""
import errno
import threading

from rmq_store import MessageStore, errors
from rmq_store.base.io._io import ProbeIo
from tests.regress.hooks import clock_hook

MIB = 1 << 20
# Every message needs a file of its own.
BIG = {"segment_size_bytes": 8 * MIB, "message_size_max_bytes": 7 * MIB, "index_enabled": False, "segment_prezero": "window"}
BODY = b"x" * (5 * MIB)


class Stop:
    """Stops one thread at its nth reading of the clock, which then is `later` ns ahead."""

    def __init__(self, thread_name, nth=1, later=0):
        self.name, self.left, self.later = thread_name, nth, later
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self):
        if threading.current_thread().name != self.name:
            return 0
        self.left -= 1
        if self.left == 0:
            self.reached.set()
            self.go.wait(30)
        return self.later if self.left <= 0 else 0


def test_a_late_request_does_not_replace_a_file_in_use(tmp_path):
    io = ProbeIo(keep_bytes=False)
    root = tmp_path / "s"
    with MessageStore.open(root, _io=io, **BIG) as s:
        second, third = f"{8 * MIB:020d}", f"{16 * MIB:020d}"
        s.put("T", BODY)
        io.hold("open", third)                  # the making of the third file
        s.put("T", BODY)                        # in the second
        io.wait_held(1)
        stop = Stop("late")
        with clock_hook(io, stop):
            late = threading.Thread(target=s.put, args=("T", BODY), name="late")
            late.start()
            assert stop.reached.wait(30)        # it knows which file it lacks, and has not asked for it yet
            io.hold("open", "/commitlog/" + second)         # zeros ahead, when the third file is there
            io.wait_held(1)
            early = s.put("T", BODY)
            assert early.offset == 16 * MIB
            stop.go.set()
            deadline = threading.Event()
            deadline.wait(0.05)                 # lets it ask; a wrong answer needs it, a right one does not
            io.release()
            late.join(30)
        assert not late.is_alive() and s.stats()["wrote"] > 24 * MIB
    with MessageStore.open(root, **BIG) as s:
        assert [m.offset for m in s.scan()] == [0, 8 * MIB, 16 * MIB, 24 * MIB]


def test_room_in_the_present_file_needs_no_next_one(tmp_path):
    io = ProbeIo(keep_bytes=False)
    small = {"segment_size_bytes": 1 << 16, "index_enabled": False}
    with MessageStore.open(tmp_path / "s", _io=io, **small) as s:
        s.put("T", b"x" * 40_000)
        io.hold("open", f"{2 << 16:020d}")
        s.put("T", b"x" * 40_000)
        io.wait_held(1)
        stop = Stop("late", 2, 1_000_000_000)       # while it waits for the third file: a slice of its time is over
        failed = []

        def put():
            try:
                s.put("T", b"y" * 25_600)
            except errors.PutError as error:
                failed.append(error)

        with clock_hook(io, stop):
            late = threading.Thread(target=put, name="late")
            late.start()
            assert stop.reached.wait(30)
            io.fail("fallocate", 1, errno.ENOSPC, f"{3 << 16:020d}", sticky=True)       # no room for one more
            io.release()
            s.put("T", b"x" * 30_000)           # takes the third file, there is room left in it
            stop.go.set()
            late.join(30)
        assert failed == [] and s.wait_dispatched(10)
        assert [len(m.body) for m in s.scan("T", 0)] == [40_000, 40_000, 30_000, 25_600]
        io.clear()
