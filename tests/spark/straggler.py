"""A task that hangs until Spark has started a second attempt of it. Runs in the Python workers of test_speculation.py.

The directory RMQ_STRAGGLER is the meeting place: `case` says which case it is and which of the two attempts hangs for good, so
that Spark kills it when the other one is done; each attempt leaves a file there. No attempt fails, so a second one is Spark's
speculation and nothing else.
"""
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GIVEN_UP_S = 120        # nothing is expected to take so long: a hang becomes a failure


def place() -> Path:
    return Path(os.environ["RMQ_STRAGGLER"])


def begin(case: str, loser: str) -> None:
    """The next case: from now on the first task that comes by hangs."""
    (place() / "next").write_text(f"{case} {loser}")
    (place() / "next").rename(place() / "case")


def came(case: str) -> list[str]:
    """Which attempts came by."""
    return sorted(path.name.rpartition(".")[2] for path in place().glob(f"{case}.*"))


def straggle() -> None:
    """Called by each attempt of one task."""
    case, loser = (place() / "case").read_text().split()
    try:
        os.close(os.open(place() / f"{case}.first", os.O_CREAT | os.O_EXCL))
        me = "first"
    except FileExistsError:
        (place() / f"{case}.second").touch()
        me = "second"
    end = time.monotonic() + GIVEN_UP_S
    while me == loser or not (place() / f"{case}.second").exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{case}: the {me} attempt was left alone: {came(case)}")
        time.sleep(0.02)


def install() -> None:
    """Puts straggle() into the native calls that jobs make for the first part of a log: before queue entries are written, and
    in the middle of an exported file."""
    import rmq_store.spark.arrow as arrow
    from rmq_store.access.bulk import _rebuild

    queue_part, read_pieces = _rebuild.queue_part, arrow.read_pieces

    def slow_part(piece: Any, *args: Any, **more: Any) -> Any:
        if piece[3] == 0:
            straggle()
        return queue_part(piece, *args, **more)

    def slow_pieces(pieces: Any, *args: Any) -> Iterator[Any]:
        for number, batch in enumerate(read_pieces(pieces, *args)):
            yield batch
            if number == 0 and pieces[0].begin == 0 and (place() / "case").read_text().startswith("export"):
                straggle()

    _rebuild.queue_part, arrow.read_pieces = slow_part, slow_pieces
