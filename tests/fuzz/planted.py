"""Victims that do what no store may: python -m tests.fuzz.planted DIR. The judge has to find each of them."""
import json
import os
import signal
import sys
import time
from pathlib import Path

from rmq_store import MessageStore
from tests.fuzz import victim
from tests.fuzz.actions import Case, demand, read_all
from tests.fuzz.cases import Base, make_ours


def writes(c: Case) -> None:
    (c.root / "planted").mkdir()


def touches(c: Case) -> None:
    os.utime(c.root / "checkpoint")


def writes_through_a_link(c: Case) -> None:
    (c.root.parent / "decoys" / "files" / "text").write_bytes(b"spoilt\n")


def writes_beside(c: Case) -> None:
    (c.root.parent / "x").write_bytes(b"")


def dies(c: Case) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def sleeps(c: Case) -> None:
    time.sleep(60)


def spins(c: Case) -> None:
    while True:
        pass


def raises(c: Case) -> None:
    raise KeyError("x")


def names_no_path(c: Case) -> None:
    raise OSError(5, "Input/output error")


def says_nothing(c: Case) -> None:
    raise OSError


def eats_memory(c: Case) -> None:
    bytearray(16 << 30)


def loses(c: Case) -> None:
    with MessageStore.open(c.root, readonly=True, **c.given) as s:
        found = read_all(s)
        topic, queue, at = min(found)
        demand(s, found, {**found, (topic, queue, at + 1_000_000): found[topic, queue, at]}, "planted")


PLANTED = [writes, touches, writes_through_a_link, writes_beside, dies, sleeps, spins, raises, names_no_path, says_nothing,
           eats_memory, loses]


def main() -> None:
    room = Path(sys.argv[1])
    victim.CPU_SECONDS, victim.ASLEEP_SECONDS = 1, 1.0
    victim.READERS[:] = PLANTED
    base = Base("ours", room / "base" / "store", {})
    base.root.parent.mkdir()
    if (pid := os.fork()) == 0:
        make_ours(base.root, "ours")
        os._exit(0)
    os.waitpid(pid, 0)
    base.options = {"segment_size_bytes": 16384, "consumequeue_file_size_bytes": 4000, "index_slots": 110,
                    "index_entries_max": 1000, "compat": "5.x"}
    for planted in PLANTED:
        for line in victim.one("planted", 0, base, room, {99}, {planted.__name__}):
            print(json.dumps({"planted": planted.__name__, **line}), flush=True)


if __name__ == "__main__":
    main()
