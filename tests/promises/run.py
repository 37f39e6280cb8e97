"""Sequences by seed, and the shortest part of one that still shows a fault."""
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.promises.ledger import Wrong
from tests.promises.steps import STEPS, consume
from tests.promises.world import World

Step = tuple[str, int]


def steps_of(seed: int, count: int = 40) -> list[Step]:
    r = random.Random(seed)
    names = r.choices(list(STEPS), [weight for _, weight in STEPS.values()], k=count)
    return [(name, r.randrange(1 << 30)) for name in names]


def play(place: Path, steps: list[Step]) -> World:
    """Raises Wrong; the world then has what was done."""
    w = World(place)
    try:
        place.mkdir(parents=True, exist_ok=True)
        w.open(random.Random(0))
        for name, how in steps:
            w.log.append(name)
            if w.io.frozen:
                w.crash(random.Random(how))
            STEPS[name][0](w, random.Random(how))
        w.log.append("end")
        w.end(random.Random(1), lambda: consume(w))
    except Wrong as wrong:
        raise Wrong(f"{wrong}. {'; '.join(w.log)}") from wrong
    except Exception as error:
        error.add_note("; ".join(w.log))
        raise
    finally:
        w.wants = 1
        w.close()
        shutil.rmtree(place, ignore_errors=True)
    return w


def fault(steps: list[Step], tries: int = 1) -> BaseException | None:
    """What a sequence shows, if anything."""
    for _ in range(tries):
        place = Path(tempfile.mkdtemp(prefix="rmq-promises-"))
        try:
            play(place / "w", steps)
        except Exception as error:
            return error
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return None


def shortest(steps: list[Step], told: Callable[[str], None] = lambda text: None) -> list[Step]:
    """Without the steps that a fault does not need. Threads make a run unlike its repetition, so each part is tried twice."""
    size = max(1, len(steps) // 2)
    while True:
        at = 0
        while at < len(steps):
            part = steps[:at] + steps[at + size:]
            if part != steps and fault(part, 2) is not None:
                steps = part
                told(f"{len(steps)} steps")
            else:
                at += size
        if size == 1:
            return steps
        size //= 2
