"""What a device may hold after a cut: all that a flush covered, and any part of what came later."""
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.power.disk import FLUSH, MARK, WRITE, Log, Record, copy_image
from tests.power.facts import Facts

SECTOR, PAGE = 512, 4096


@dataclass(frozen=True)
class State:
    """An image after a cut behind `cut` records; what had been told by then; how many writes no flush covered, and which of
    them it holds."""

    image: Path
    facts: Facts
    cut: int
    pending: int
    kept: str


def first_mark(log: Log, *kinds: str) -> int:
    """The number of the first record that says one of these, the length of the log where none does."""
    wanted = [f'["{kind}"'.encode() for kind in kinds]
    for number, record in enumerate(log.records):
        if record.kind == MARK and log.bytes_of(record).startswith(tuple(wanted)):
            return number
    return len(log.records)


def choose_cuts(log: Log, begin: int, count: int, rnd: random.Random) -> list[int]:
    """Where the power fails, in order: behind marks, between writes, and most of all where much is written and not flushed."""
    marks, writes, weights, full, pending = [], [], [], [], 0
    for number, record in enumerate(log.records):
        if record.kind == FLUSH:
            if number > begin and pending:
                full.append(number)
                weights.append(pending ** 2)
            pending = 0
        pending += record.kind == WRITE
        if number >= begin:
            (marks if record.kind == MARK else writes).append(number)
    if pending:
        full.append(len(log.records))
        weights.append(pending ** 2)
    cuts = []
    for _ in range(count):
        chance = rnd.random()
        if full and chance < 0.5:
            cuts.append(rnd.choices(full, weights)[0])
        elif marks and chance < 0.75:
            cuts.append(rnd.choice(marks) + 1)
        else:
            cuts.append(rnd.choice(writes or [begin]) + rnd.randrange(2))
    return sorted(cuts)


def make_states(base: Path, log: Log, facts: Facts, cuts: list[int], rnd: random.Random, room: Path, *,
                lying: bool = False) -> Iterator[State]:
    """A state for each cut, in order; its image is the caller's to remove. `base` becomes what is flushed as the walk goes on.
    lying: flushes do nothing, which nobody survives."""
    fd = os.open(base, os.O_RDWR)
    pending: list[Record] = []
    at = 0
    facts = facts.copy()
    try:
        for number, cut in enumerate(cuts):
            for record in log.records[at:cut]:
                if record.kind == WRITE:
                    pending.append(record)
                elif record.kind == MARK:
                    facts.feed(log.bytes_of(record))
                elif not lying:
                    for covered in pending:
                        os.pwrite(fd, log.bytes_of(covered), covered.offset)
                    pending = []
            at = max(at, cut)
            image = copy_image(base, room / f"state-{number}")
            kept = _keep_some(image, log, pending, rnd)
            yield State(image, facts.copy(), cut, len(pending), kept)
    finally:
        os.close(fd)


def _keep_some(image: Path, log: Log, pending: list[Record], rnd: random.Random) -> str:
    """Writes a part of what is pending to the image, and says which: writes as a whole, sectors or pages of them."""
    how = rnd.choice(("none", "all", "writes", "writes", "sectors", "sectors", "pages", "the first", "the last", "all but one"))
    share, middle = rnd.choice((0.1, 0.5, 0.9)), rnd.randrange(len(pending) + 1)
    unit = {"sectors": SECTOR, "pages": PAGE}.get(how)
    keep = {
        "none": lambda i: False, "all": lambda i: True, "the first": lambda i: i < middle, "the last": lambda i: i >= middle,
        "all but one": lambda i: i != middle, "writes": lambda i: rnd.random() < share,
    }.get(how, lambda i: True)
    fd = os.open(image, os.O_RDWR)
    for i, record in enumerate(pending):
        if not keep(i):
            continue
        data = log.bytes_of(record)
        step = unit or len(data)
        for begin in range(0, len(data), step):
            if unit is None or rnd.random() < share:
                os.pwrite(fd, data[begin:begin + step], record.offset + begin)
    os.close(fd)
    return f"{how} {share}" if unit or how == "writes" else how
