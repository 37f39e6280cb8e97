"""Opens damaged stores and reads all they give: python -m tests.fuzz.victim --seed S --begin A --end B --dir D.

One JSON line before each case and one behind it, so that whoever reads them knows which case killed this process. A finding is
anything but an answer or a typed error: another exception, a message that was never put where its store was not damaged, a put
that is lost. Reads behind the end of a file meet the probe's guard page; limits on memory and processor time meet the rest.
"""
import argparse
import contextlib
import faulthandler
import gc
import itertools
import json
import logging
import resource
import shutil
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from rmq_store import MessageStore, errors, verify
from rmq_store.integrity.repair import repair
from rmq_store.io._io import ProbeIo
from tests.fuzz.damage import damage
from tests.golden_store import GoldenCase, unpack

GOLDEN = ["v4-roll", "v4-crash-live", "v4-cqext", "v5-crash-cqbehind", "v5-roll", "v5-longtopic"]
# Whole pages: what is read behind the end of a file meets the guard and not the rest of a page.
OURS = {"segment_size_bytes": 16384, "consumequeue_file_size_bytes": 4000, "index_slots": 110, "index_entries_max": 1000}
MEMORY = 4 << 30
CPU_SECONDS = 30
STEPS_MAX = 3000        # of a walk over one queue: an answer that leads nowhere is a hang
ALLOWED = (errors.RmqStoreError, OSError)


class Finding(Exception):
    """A store that does what no store may."""


def make_ours(root: Path, kind: str) -> dict[str, Any]:
    """A store of ours: (options)."""
    options: dict[str, Any] = OURS | {"write_path": "pool" if "pool" in kind else "mmap", "record_crc": "crc" in kind,
                                      "consumequeue_ext_enabled": "ext" in kind}
    random = Random(kind)
    with MessageStore.open(root, **options) as s:
        for i in range(400):
            s.put(random.choice(["T", "topic-2", "%RETRY%x"]), random.randbytes(random.choice([0, 10, 100, 300])),
                  queue_id=i % 3, keys=f"k{i} Aa" if i % 2 else None, tags="t" if i % 3 else None,
                  properties={"UNIQ_KEY": f"u{i}"} if i % 5 else {"a": "b"})
        s.put_many("T", [b"many"] * 50, queue_id=1)
        s.wait_dispatched()
        if "crash" in kind:
            s.flush()
            shutil.copytree(root, f"{root}.image", ignore=shutil.ignore_patterns(".alloc"))
    if "crash" in kind:
        shutil.rmtree(root)
        Path(f"{root}.image").rename(root)
    return options


def bases(directory: Path) -> list[tuple[str, Path, dict[str, Any]]]:
    """(name, root, options) of every store that is damaged."""
    found = []
    for name in GOLDEN:
        case = GoldenCase(name, directory / "base" / name / "store")
        if not case.store.exists():
            unpack(name, directory / "base" / name)
        found.append((name, case.store, {**case.config, "compat": case.compat}))
    for name in ("ours", "ours-pool-crc", "ours-ext-crash"):
        root = directory / "base" / name
        options = make_ours(root, name) if not root.exists() else None
        found.append((name, root, options or OURS | {"consumequeue_ext_enabled": "ext" in name}))
    return found


def known(root: Path, options: dict[str, Any]) -> dict[int, bytes]:
    """Record bytes by log offset, of the undamaged store."""
    with MessageStore.open(root, readonly=True, **usable(options)) as s:
        return {m.offset: m.raw for m in s.scan()}


def usable(options: dict[str, Any]) -> dict[str, Any]:
    """What a store is opened for reading with: sizes alone."""
    return {k: v for k, v in options.items() if k not in ("write_path", "record_crc")}


def content(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in directory.iterdir() if p.is_file()} if directory.is_dir() else {}


def look(m: Any) -> None:
    """Every field of a message."""
    _ = (m.topic, m.queue_id, m.queue_offset, m.offset, m.size, bytes(m.body), m.tags, m.keys, m.properties, m.flag, m.sys_flag,
         m.born_timestamp, m.store_timestamp, m.born_host, m.store_host, m.reconsume_times, m.msg_id, m.body_crc_ok, m.raw,
         m.unique_key, m.prepared_transaction_offset, m.properties_raw, repr(m))


def tolerate(calls: Iterator[Any]) -> None:
    try:
        for _ in calls:
            pass
    except ALLOWED:
        pass


def read_log(s: MessageStore) -> Iterator[None]:
    for m in s.scan():
        look(m)
        yield


def read_queue(s: MessageStore, topic: str, queue: int, log: dict[int, bytes] | None) -> Iterator[None]:
    at, high = s.min_offset(topic, queue), s.max_offset(topic, queue)
    for step in itertools.count():
        result = s.get(topic, queue, at, 32)
        for m in result:
            look(m)
            if m.topic != topic or m.queue_id != queue:
                raise Finding(f"{topic}/{queue} gave a message of {m.topic}/{m.queue_id}")
            if log is not None and log.get(m.offset) != m.raw:
                raise Finding(f"{topic}/{queue}@{m.queue_offset} gave bytes that were never put, at {m.offset}")
        if result.next_offset <= at or at >= high:
            break
        at = result.next_offset
        if step > STEPS_MAX:
            break                       # entries beyond number: a name said so; each call was answered
        yield
    for offset in (-1, 0, high - 1, high, high + 1, 1 << 62):
        s.get(topic, queue, offset)
        s.raw_entry(topic, queue, offset)
        yield
    for t in (0, -1, 1_700_000_000_000, (1 << 63) - 1):
        for boundary in ("lower", "upper", "nearest"):
            s.offset_by_time(topic, queue, t, boundary=boundary)
        yield
    s.earliest_time(topic, queue)


def read_keys(s: MessageStore, topic: str) -> Iterator[None]:
    for key in ("k1", "Aa", "k399", "u1", "BB", "nothing"):
        for m in s.query_key(topic, key):
            look(m)
        s.message_by_unique_key(topic, key)
        yield


def read_all(s: MessageStore, log: dict[int, bytes] | None) -> None:
    s.stats()
    tolerate(read_log(s))
    for topic in s.topics():
        for queue in s.queues(topic):
            tolerate(read_queue(s, topic, queue, log))
        tolerate(read_keys(s, topic))
    for offset in (-1, 0, 1, 91, 65536, 1 << 40, (1 << 63) - 1):
        s.message_at(offset)
    s.earliest_time()


def put_some(root: Path, options: dict[str, Any], log: dict[int, bytes] | None) -> None:
    """Opens for writing, reads, puts, closes; what was put is there afterwards."""
    with MessageStore.open(root, _io=ProbeIo(keep_bytes=False), **options) as s:
        read_all(s, log)
        put = [s.put("T", b"after %d" % i, queue_id=i % 2, keys="after") for i in range(4)]
        s.flush()
        if not s.wait_dispatched(20):
            raise Finding("what was put is not dispatched")
        check(s, put)
    with MessageStore.open(root, _io=ProbeIo(keep_bytes=False), **options) as s:
        if s.stats()["recovered"]:
            raise Finding("a closed store recovers")
        if s.cut_bytes == 0:
            check(s, put)
        elif not kept_aside(root, len(put)):
            # Upstream's rule: damage in one of the last files, met only now, cuts the log.
            raise Finding("what was put was cut off and is not in .salvage/")


def kept_aside(root: Path, count: int) -> bool:
    data = b"".join(p.read_bytes() for p in sorted((root / ".salvage").iterdir()))
    return all(b"after %d" % i in data for i in range(count))


def check(s: MessageStore, put: list[Any]) -> None:
    for i, place in enumerate(put):
        m, got = s.message_at(place.offset), s.get("T", i % 2, place.queue_offset, 1)
        if m is None or bytes(m.body) != b"after %d" % i:
            raise Finding(f"put {i} is not at {place.offset}")
        if len(got) != 1 or got[0].offset != place.offset:
            raise Finding(f"put {i} is not in its queue at {place.queue_offset}: {got!r}")


def one(seed: str, n: int, base: tuple[str, Path, dict[str, Any]], log: dict[int, bytes], root: Path) -> dict[str, Any]:
    """Damages a copy and tries it. What was found, if anything."""
    random = Random(f"{seed}:{n}")
    name, original, options = base
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(original, root, symlinks=True)
    done = damage(random, root)
    say(case=n, base=name, damage=done)
    whole = content(root / "commitlog") == content(original / "commitlog")
    given = usable(options) if random.random() < 0.6 else {k: v for k, v in usable(options).items() if "compat" in k}
    answers = []
    steps = (lambda: tools(root, given), lambda: readonly(root, given, log if whole else None),
             lambda: put_some(root, given, log if whole else None))
    for step in steps:
        try:
            step()
            answers.append("fine")
        except Finding as finding:
            return {"finding": str(finding)}
        except ALLOWED as error:
            if not str(error).strip():
                return {"finding": f"{type(error).__name__} says nothing"}
            answers.append(type(error).__name__)
        except BaseException:
            return {"finding": traceback.format_exc()}
    return {"answers": answers}


def tools(root: Path, options: dict[str, Any]) -> None:
    """What is there to be used on damaged stores: it finds, and repairs a copy, or says why not."""
    found = [str(f) for f in verify(root, **options)]
    steps = repair(root, dry_run=True, restore=True, **options).steps
    if not found and steps:
        raise Finding(f"nothing is wrong, and repair would {steps}")
    copy = root.with_name("repaired")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy, symlinks=True, ignore=ignore_specials)
    result = repair(copy, dry_run=False, open_store=MessageStore.open, **options)
    if result.left and not any(s.kind == "none" for s in result.steps):
        again = repair(copy, dry_run=False, open_store=MessageStore.open, **options)
        if again.left:
            raise Finding(f"repair leaves {[str(f) for f in again.left][:3]} after {[s.kind for s in result.steps]}")


def ignore_specials(directory: str, names: list[str]) -> list[str]:
    return [n for n in names if (Path(directory) / n).is_fifo()]


def readonly(root: Path, options: dict[str, Any], log: dict[int, bytes] | None) -> None:
    with MessageStore.open(root, readonly=True, _io=ProbeIo(keep_bytes=False), **options) as s:
        read_all(s, log)


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", required=True)
    parser.add_argument("--begin", type=int, required=True)
    parser.add_argument("--end", type=int, required=True)
    parser.add_argument("--dir", type=Path, required=True)
    args = parser.parse_args()
    logging.getLogger("rmq_store").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    faulthandler.enable(sys.stderr)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    stores = bases(args.dir)
    logs: dict[str, dict[int, bytes]] = {}
    for n in range(args.begin, args.end):
        base = stores[n % len(stores)]
        if base[0] not in logs:
            logs[base[0]] = known(base[1], base[2])
        # A case that spins is killed; the clock counts this process's own work, not the time it waits or is stopped.
        spent = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(spent.ru_utime + spent.ru_stime) + CPU_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        say(case=n, **one(args.seed, n, base, logs[base[0]], args.dir / "store"))
        with contextlib.suppress(BufferError):
            gc.collect()


if __name__ == "__main__":
    main()
