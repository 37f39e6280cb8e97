"""The measured loops, one for each kind of message, made from one text.

They are generated because a call through **arguments, a partial or a lambda would cost about as much as the put that is to be
measured. Every loop takes `rounds`, lists of ROUND tuples, and works through them again and again, until `most` messages are
put or the clock (ns) has passed `deadline`, but once at least; it returns how many it put. The timer, about 50 ns, is in every
measured value.
"""
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from rmq_store.base.histogram._histogram import Histogram
from rmq_store.errors import CreateMappedFileFailed, OsPageCacheBusy, PoolExhausted

ROUND = 64      # puts between two looks at the clock
SPARE = 300_000     # ns before a due time at which a producer alone stops sleeping
JUMP = 20_000       # ns between two looks at the clock that were no work: the thread did not have its core

# kind of message -> what follows the body in its tuple, given to put under these names; "bare" is a peer's put(body)
KEYWORDS: dict[str, tuple[str, ...]] = {"lean": ("queue_id",), "tagged": ("queue_id", "tags", "keys"),
                                        "full": ("queue_id", "properties"), "bare": ()}

_TEXT = """
def plain(put, topic, rounds, most, deadline, clock, add):
    # add: nanoseconds of each round
    count = call = 0
    before = clock()
    while count < most and (before < deadline or not count):
        for {names} in rounds[call % len(rounds)]:
            {call}
        after = clock()
        add(after - before)
        before = after
        call += 1
        count += {size}
    return count


def timed(put, topic, rounds, most, deadline, clock, add):
    # add: nanoseconds of each put
    count = call = before = 0
    while count < most and (before < deadline or not count):
        for {names} in rounds[call % len(rounds)]:
            before = clock()
            {call}
            add(clock() - before)
        call += 1
        count += {size}
    return count


def slow(put, topic, rounds, most, deadline, clock, add):
    # as timed, for puts of a millisecond: looks at the deadline after each
    count = before = 0
    while True:
        for {names} in rounds[count // {size} % len(rounds)]:
            before = clock()
            {call}
            after = clock()
            add(after - before)
            count += 1
            if after >= deadline or count >= most:
                return count


def due(put, topic, rounds, most, deadline, clock, add, service, gap, sleep, pace):
    # add: nanoseconds from the moment a put was due, `gap` after the one before, to its end; service: from its begin
    count = call = 0
    moment = pace.first or clock()
    alone, refused, spare = pace.alone, pace.refused, SPARE if pace.alone else 0
    while count < most and (moment < deadline or not count):
        for {names} in rounds[call % len(rounds)]:
            start = clock()
            if start < moment:
                if moment - start > spare + 50_000:
                    sleep((moment - start - spare) / 1e9)
                    start = clock()
                while start < moment:
                    if not alone:
                        sleep(0)
                    now = clock()
                    if now - start < JUMP:
                        pace.spun += now - start
                    start = now
            while True:
                try:
                    {call}
                    break
                except refused:
                    pace.fails += 1
                    sleep(0.001)
            end = clock()
            add(end - moment)
            service(end - start)
            moment += gap
            count += 1
            if moment >= deadline:
                break
        call += 1
    return count
"""


@dataclass
class Pace:
    """How one producer of several keeps its due times, and what it met.

    A producer alone waits for the last of the time to a put with a busy core, which is exact; several of them sleep, and let go
    of the interpreter, for they would keep one another and the store's threads from work. Refused puts are tried again, and
    their latency counts from the moment when they were due first.
    """

    first: int = 0          # when its first put is due; 0: now
    alone: bool = True
    refused: tuple[type[Exception], ...] = (PoolExhausted, OsPageCacheBusy, CreateMappedFileFailed)
    spun: int = 0           # ns with a busy core that waited
    fails: int = 0          # refused puts


class Loops(NamedTuple):
    """Each returns the messages it put."""

    plain: Callable[..., int]
    timed: Callable[..., int]
    slow: Callable[..., int]
    due: Callable[..., int]


def loops(props: str) -> Loops:
    """The loops for a kind of message, of KEYWORDS."""
    names = ", ".join(("body", *KEYWORDS[props])) + ","
    arguments = [] if props == "bare" else ["topic"]
    call = f"put({', '.join([*arguments, 'body', *(f'{k}={k}' for k in KEYWORDS[props])])})"
    space: dict[str, Any] = {"SPARE": SPARE, "JUMP": JUMP}
    exec(compile(_TEXT.format(names=names, call=call, size=ROUND), f"<loops for {props} messages>", "exec"), space)
    return Loops(space["plain"], space["timed"], space["slow"], space["due"])


def batches(put_many: Callable[[list[bytes], int], object], many: list[list[bytes]], most: int, deadline: int,
            clock: Callable[[], int], times: Histogram) -> int:
    """The same for batches; times: nanoseconds of each call."""
    count = call = 0
    size = len(many[0])
    add: Any = times.add
    before = clock()
    while count < most and (before < deadline or not count):
        put_many(many[call % len(many)], call & 3)
        after = clock()
        add(after - before)
        before = after
        call += 1
        count += size
    return count
