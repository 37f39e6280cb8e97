"""The measured loops, one for each kind of message, made from one text.

They are generated because a call through **arguments, a partial or a lambda would cost about as much as the put that is to be
measured. Every loop takes `rounds`, lists of ROUND tuples, and works through them again and again.
"""
from collections.abc import Callable, MutableSequence
from typing import NamedTuple

ROUND = 64      # puts between two looks at the clock

# kind of message -> what follows the body in its tuple, given to put under these names
KEYWORDS = {"lean": ("queue_id",), "tagged": ("queue_id", "tags", "keys"), "full": ("queue_id", "properties")}

_TEXT = """
def plain(put, topic, rounds, most, deadline, clock, samples):
    # samples: nanoseconds of each round
    count = call = 0
    before = clock()
    while count < most and before < deadline:
        for {names} in rounds[call % len(rounds)]:
            {call}
        after = clock()
        samples[call] = after - before
        before = after
        call += 1
        count += {size}
    return count, call


def timed(put, topic, rounds, most, deadline, clock, samples):
    # samples: nanoseconds of each put
    count = call = 0
    before = clock()
    while count < most and before < deadline:
        for {names} in rounds[call % len(rounds)]:
            before = clock()
            {call}
            samples[count] = clock() - before
            count += 1
        call += 1
    return count, count


def due(put, topic, rounds, most, deadline, clock, samples, gap):
    # samples: nanoseconds from the moment a put was due, `gap` after the one before, to its end
    count = call = 0
    moment = clock()
    while count < most and moment < deadline:
        for {names} in rounds[call % len(rounds)]:
            while clock() < moment:
                pass
            {call}
            samples[count] = clock() - moment
            moment += gap
            count += 1
        call += 1
    return count, count
"""


class Loops(NamedTuple):
    """Each returns (messages put, samples taken)."""

    plain: Callable[..., tuple[int, int]]
    timed: Callable[..., tuple[int, int]]
    due: Callable[..., tuple[int, int]]


def loops(props: str) -> Loops:
    names = ", ".join(("body", *KEYWORDS[props]))
    call = f"put(topic, body, {', '.join(f'{k}={k}' for k in KEYWORDS[props])})"
    space: dict[str, Callable[..., tuple[int, int]]] = {}
    exec(compile(_TEXT.format(names=names, call=call, size=ROUND), f"<loops for {props} messages>", "exec"), space)
    return Loops(space["plain"], space["timed"], space["due"])


def batches(put_many: Callable[..., object], topic: str, many: list[list[bytes]], most: int, deadline: int,
            clock: Callable[[], int], samples: MutableSequence[int]) -> tuple[int, int]:
    """The same for put_many; samples: nanoseconds of each call."""
    count = call = 0
    size = len(many[0])
    before = clock()
    while count < most and before < deadline:
        put_many(topic, many[call % len(many)], queue_id=call & 3)
        after = clock()
        samples[call] = after - before
        before = after
        call += 1
        count += size
    return count, call
