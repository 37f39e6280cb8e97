"""A process that does to stores what Spark's processes do, each command in a child of its own, which may be killed at any step.

One JSON object a line comes in, one goes out: {"result": ...}, {"error": type, "text": ...} or {"ended": how}, with the
steps that the commit went through. No session and no JVM: tasks are staged one after the other, then the commit runs, as Spark
has it.
"""
import json
import logging
import os
import sys

from rmq_store import MessageStore
from rmq_store.access.bulk._staged import encode_rows
from rmq_store.spark import shards, staging
from tests.spark import sink_plants
from tests.spark.staging_of import numbers, text

SMALL = {"segment_size_bytes": 16384, "index_slots": 20, "index_entries_max": 100, "consumequeue_file_size_bytes": 2000}


class Full(OSError):
    """A failure that was asked for."""


def encode(rows):
    return encode_rows({"topic": text(*[b"T"] * len(rows)), "body": text(*[row.encode() for row in rows]),
                        "queueId": numbers(*[len(row) % 2 for row in rows])}, len(rows), now=1234)


def parts_of(rows, tasks):
    """Rows by task: consecutive ones, as many each as may be."""
    size = -(-len(rows) // tasks)
    return [rows[i * size:(i + 1) * size] for i in range(tasks)]


def write(root, app, version, job, rows, tasks, options, query=None, fsync=True):
    """A batch write, or a batch of a stream. After an error Spark aborts."""
    try:
        found = []
        for number, part in enumerate(parts_of(rows, tasks)):
            if staging.enter(root, job, app, version):
                file = staging.StageFile(root, job, number)
                if part:
                    file.add(encode(part), len(part))
                found.append(file.finish())
        staging._step("staged")
        return staging.commit_staged(root, app, version, found, SMALL | options, job, fsync, query, len(rows)).repeated
    except Exception:
        staging.abandon(root, job)
        raise


def load(root, app, version, job, rows, tasks):
    """A bulk load."""
    try:
        found = []
        for number, part in enumerate(parts_of(rows, tasks)):
            if staging.enter(root, job, app, version):
                found.append(shards.build_shard(root, job, number, [encode(part)] if part else [], SMALL))
        staging._step("staged")
        return shards.commit_shards(root, app, version, [shard for shard in found if shard is not None], job).repeated
    except Exception:
        staging.abandon(root, job)
        raise


def put(root, rows, options):
    with MessageStore.open(root, **SMALL | options) as store:
        for row in rows:
            store.put("T", row.encode(), queue_id=0)


def clean(root, options):
    """Where the log begins then: a file that a thread of the store still had in hand stays."""
    with MessageStore.open(root, **SMALL | options) as store:
        store.clean(0)
    names = os.listdir(options.get("commitlog_path") or os.path.join(root, "commitlog"))
    return min(map(int, names), default=0)


def read(root, options):
    """[[log offset, body], ...] and where the log ends."""
    with MessageStore.open(root, readonly=True, **options) as store:
        return [[m.offset, bytes(m.body).decode()] for m in store.scan()], store.max_log_offset


def serve(command, out):
    """One command, in a child. die: a step, or behind how many appends, where it is killed; fails: has it meet a full disk."""
    steps, die, fails = [], command.pop("die", None), command.pop("fails", False)
    if "cwd" in command:
        os.chdir(command.pop("cwd"))
    sink_plants.plant(command.pop("plant", None))
    append = staging.append_staged

    def end():
        nonlocal die
        die = None
        if fails:
            raise Full(28, "No space left on device")
        tell({"ended": "killed"})
        os.kill(os.getpid(), 9)

    def step(name):
        steps.append(name)
        if name == die:
            end()

    def some(store, data, path):
        nonlocal die
        if isinstance(die, int):
            if die == 0:
                end()
            else:
                die -= 1
        return append(store, data, path)

    def tell(what):
        os.write(out, json.dumps(what | {"steps": steps}).encode())

    staging._step = shards._step = step
    staging.append_staged = some
    staging.CHUNK = 4000
    try:
        tell({"result": globals()[command.pop("do")](**command)})
    except Full:
        tell({"ended": "failed"})
    except Exception as error:
        tell({"error": type(error).__name__, "text": str(error)})


def main():
    logging.disable()
    for line in sys.stdin:
        here, there = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(here)
            serve(json.loads(line), there)
            os._exit(0)
        os.close(there)
        with open(here, "rb") as answers:
            answer = answers.read().decode()
        os.waitpid(child, 0)
        print(answer, flush=True)


if __name__ == "__main__":
    main()
