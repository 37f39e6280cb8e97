"""Opens damaged stores and does with them all there is to do: python -m tests.fuzz.victim --seed S --begin A --end B --dir D.

One JSON line before each case and one behind it. Each action runs in a child of this process, under limits of memory,
processor time and wall-clock time, so that a crash and a hang are findings of that action, and the next goes on. A finding is
anything but an answer or a typed error. Started by root, all of it goes on as nobody: a store may lead a victim anywhere.

RMQ_FUZZ_SLOW: factor on the limits of time. RMQ_FUZZ_MEMORY: MiB of address space, 0 for no limit. Under a sanitizer's library
(LD_PRELOAD) they are 5 and 0, and what it says on standard error is a finding.
"""
import argparse
import encodings
import faulthandler
import gc
import importlib
import json
import logging
import os
import pkgutil
import resource
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import rmq_store
from rmq_store._extensions import NAMES
from tests.fuzz.actions import ALLOWED, READERS, WRITERS, Case, Finding, told, write
from tests.fuzz.cases import Base, build, choose, load_base, make_base, wipe
from tests.fuzz.judge import Must, differs, snapshot
from tests.fuzz.odd import PRECIOUS

SANITIZED = "san" in os.environ.get("LD_PRELOAD", "")
SLOW = float(os.environ.get("RMQ_FUZZ_SLOW", "5" if SANITIZED else "1"))
MEMORY = int(os.environ.get("RMQ_FUZZ_MEMORY", "0" if SANITIZED else "4096")) << 20
COMPLAINTS = ("runtime error:", "ERROR: AddressSanitizer", "WARNING: ThreadSanitizer")
FILE_SIZE = 256 << 20           # nobody writes more into memory's disk than the machine has
CPU_SECONDS = int(10 * SLOW)
WALL_SECONDS = 40 * SLOW        # with much room: the machine may be busy
ASLEEP_SECONDS = 3 * SLOW       # without a tick of processor time
NOBODY = 65534
Action = Callable[[Case], None]


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


# ---- the child

def run_all(actions: list[Action], case: Case, out: int) -> None:
    """One action after the other, told on `out`."""
    for action in actions:
        os.write(out, f"begin {action.__name__}\n".encode())
        answer: dict[str, Any] = {"action": action.__name__}
        _limits()
        faulthandler.dump_traceback_later(WALL_SECONDS - 1)
        try:
            action(case)
            answer["is"] = "fine"
        except Finding as finding:
            answer |= {"finding": str(finding), "stack": traceback.format_exc()}
        except ALLOWED as error:
            answer["is"] = type(error).__name__
            try:
                told(error)
            except Finding as finding:
                answer |= {"finding": str(finding), "stack": traceback.format_exc()}
        except BaseException as error:
            answer |= {"finding": f"untyped {type(error).__name__}: {str(error)[:300]}", "stack": traceback.format_exc()}
        faulthandler.cancel_dump_traceback_later()
        gc.collect()
        os.write(out, f"end {json.dumps(answer)}\n".encode())


def _limits() -> None:
    spent = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(spent.ru_utime + spent.ru_stime) + CPU_SECONDS, resource.RLIM_INFINITY))


def _child(actions: list[Action], case: Case, out: int, errors: Path) -> None:
    fd = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(fd, 2)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    if MEMORY:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    faulthandler.enable(2)
    faulthandler.register(signal.SIGXCPU, file=2, chain=True)
    run_all(actions, case, out)


# ---- the parent

def _ticks(pid: int) -> int:
    """Processor time so far; -1 while it could run and has to wait for a processor."""
    with open(f"/proc/{pid}/stat") as f:
        parts = f.read().rpartition(")")[2].split()
    return -1 if parts[0] == "R" else int(parts[11]) + int(parts[12])


def _lines(pid: int, fd: int) -> Iterator[str | None]:
    """Lines as they come; None where the child hangs, which is then dead."""
    text, begun, moved, ticks = b"", time.monotonic(), time.monotonic(), -1
    while True:
        if not select.select([fd], [], [], 0.5)[0]:
            now, last = time.monotonic(), ticks
            with suppress(OSError):
                ticks = _ticks(pid)
            moved = now if ticks != last or ticks < 0 else moved
            if now - begun > WALL_SECONDS or now - moved > ASLEEP_SECONDS:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGABRT)        # faulthandler tells where it is
                yield None
                return
            continue
        data = os.read(fd, 1 << 16)
        if not data:
            return
        begun = moved = time.monotonic()
        text += data
        *whole, text = text.split(b"\n")
        yield from (line.decode() for line in whole)


def attempt(actions: list[Action], case: Case, errors: Path) -> Iterator[dict[str, str]]:
    """The answer of each action; whoever dies is followed by another child, which goes on behind it."""
    left, deaths = list(actions), 0
    while left and deaths < 3:
        read, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(read)
                _child(left, case, write_end, errors)
                code = 0
            finally:
                os._exit(code)
        os.close(write_end)
        at, hung = left[0].__name__, False
        for line in _lines(pid, read):
            if line is None:
                hung = True
            elif line.startswith("begin "):
                at = line[6:]
            else:
                yield json.loads(line[4:])
                left = left[1:]
        os.close(read)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said = errors.read_text(errors="replace")
        if status != 0 or hung:
            deaths += 1
            how = "hangs" if hung or status == -signal.SIGXCPU else f"ends with {status}"
            yield {"action": at, "finding": how, "stack": said[-6000:]}
            left = left[1:]
        elif any(complaint in said for complaint in COMPLAINTS):
            yield {"action": at, "finding": "the sanitizer complains", "stack": said[-6000:]}


def one(seed: str, n: int, base: Base, room: Path, only: set[int] | None, names: set[str]) -> Iterator[dict[str, Any]]:
    """Case `n`: what was done to the store, then the answer of each action."""
    random = Random(f"{seed}:{n}:actions")
    place = room / "case"
    done = build(seed, n, base, place, only)
    yield {"case": n, "base": base.name, "damage": done}
    given, trusted = (base.sizes, True) if random.random() < 0.7 else ({k: base.sizes[k] for k in ("compat",)}, False)
    writers = [write, random.choice(WRITERS)]
    must = Must(base, place / "store")
    inside, beside = snapshot(place / "store"), snapshot(place / "decoys")
    around = sorted(os.listdir(room))

    def case() -> Case:
        return Case(base, place / "store", must, Random(f"{seed}:{n}:case"), dict(given), trusted)

    readers = [a for a in READERS if a.__name__ in names
               or (not names and random.random() < (0.3 if a.__name__.startswith("cli") else 0.7))]
    yield from attempt(readers, case(), room / "stderr")
    if changed := differs(inside, snapshot(place / "store")):
        yield {"action": "+".join(sorted(names)) or "readers", "finding": f"a reader wrote: {changed}"}
    yield from _outside(beside, place, around, room, "readers")
    for action in writers if not names else [a for a in [write, *WRITERS] if a.__name__ in names]:
        build(seed, n, base, place, only)
        beside = snapshot(place / "decoys")
        yield from attempt([action], case(), room / "stderr")
        yield from _outside(beside, place, around, room, action.__name__)


def _outside(before: Any, place: Path, around: list[str], room: Path, who: str) -> Iterator[dict[str, Any]]:
    """Decoys, and the names beside the store, are as they were. What a store made behind a link to a directory is its own."""
    after = snapshot(place / "decoys")
    files, files_now = ({k: v for k, v in s.items() if k.startswith("files")} for s in (before, after))
    precious = {k: v for k, v in before.items() if k in PRECIOUS}
    changed = differs(files, files_now) or differs(precious, after, added=False)
    others = sorted(set(os.listdir(room)) - set(around) - {"stderr"}) + sorted(
        set(os.listdir(place)) - {"store", "decoys", "made"})
    if changed or others:
        yield {"action": who, "finding": f"outside the store: {changed} {others}"}


def _become_nobody(room: Path) -> None:
    if os.geteuid() == 0:
        os.chown(room, NOBODY, NOBODY)
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, 0)         # root comes back to make devices, and for nothing else
    os.listdir(room)                            # a room that nobody can enter: an error here and not in every case


def _import_all() -> None:
    """The checkout, or Python itself, may be closed to nobody."""
    importlib.import_module("tomllib")
    for package in (rmq_store, encodings):
        names = [module.name for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
        for name in names + sorted(NAMES if package is rmq_store else ()):
            if not name.endswith("__main__"):
                with suppress(ImportError):
                    importlib.import_module(name)


def _base(directory: Path, name: str) -> Base:
    found = load_base(directory, name)
    if found is None:
        wipe(directory / name)
        if (pid := os.fork()) == 0:
            code = 1
            try:
                make_base(directory, name)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.waitpid(pid, 0)
        found = load_base(directory, name)
        if found is None:
            raise SystemExit(f"the store {name}, which is to be damaged, could not be made")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--begin", type=int, required=True)
    parser.add_argument("--end", type=int, required=True)
    parser.add_argument("--dir", type=Path, required=True, help="a directory of its own; what it holds is kept between runs")
    parser.add_argument("--only", type=int, action="append", help="these damages of each case alone, counted from 0")
    parser.add_argument("--action", action="append", default=[], help="these actions alone")
    args = parser.parse_args()
    logging.getLogger("rmq_store").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    _import_all()
    args.dir.mkdir(exist_ok=True)
    _become_nobody(args.dir)
    for n in range(args.begin, args.end):
        answers: dict[str, str] = {}
        base = _base(args.dir / "base", choose(args.seed, n))
        for line in one(args.seed, n, base, args.dir, set(args.only) if args.only else None, set(args.action)):
            if "is" in line:
                answers[line["action"]] = line["is"]
            if "damage" in line or "finding" in line:
                say(**{"case": n, **line})
        say(case=n, answers=answers)
    wipe(args.dir / "case")


if __name__ == "__main__":
    main()
