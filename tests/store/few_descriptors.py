"""A log and an index of hundreds of files in a process that may have few open files. Prints what it found."""
import json
import os
import resource
import sys

from rmq_store import MessageStore

LIMIT, FILES, BODY = 150, 170, b"x" * 5000
ROOT, OPTIONS = sys.argv[1], json.loads(sys.argv[2])


def held(path=ROOT):
    """Descriptors of the log and of the index."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue            # that of the list itself
    return sum("/commitlog/" in name or "/index/" in name for name in names)


def own():
    """Descriptors that the program itself can still take, of 16."""
    return len([os.close(fd) for fd in [os.open("/dev/null", os.O_RDONLY) for _ in range(16)]])


def looks(store, first, last):
    """What there is of the two messages that were put first and last of those that are there, on every way to them."""
    for at in (first, last):
        message = store.get("T", 0, at)[0]
        assert bytes(message.body) == BODY and message.keys == f"k{at}"
        assert bytes(store.message_at(message.offset).body) == BODY
        assert [m.queue_offset for m in store.query_key("T", f"k{at}")] == [at]
        assert store.offset_by_time("T", 0, message.store_timestamp) <= at
    return len(store.get("T", 0, first, 10))


def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    found = {}
    with MessageStore.open(ROOT, **OPTIONS) as store:
        count = most = end = 0
        while end < FILES * OPTIONS["segment_size_bytes"]:
            end = store.put("T", BODY, keys=f"k{count}").offset
            count += 1
            if count % 100 == 0:
                most = max(most, held())
        store.flush()
        assert store.wait_dispatched(60)
        found["most"], found["own"] = most, own()
        looks(store, 0, count - 1)
        kept = store.get("T", 0, 0)         # of a file without a descriptor
        child = os.fork()
        if child == 0:
            os._exit(0 if bytes(kept[0].body) == BODY else 1)
        assert os.waitpid(child, 0)[1] == 0
        del kept
        assert store.clean(0, files_max=40).log_files == 40
        first = store.min_offset("T", 0)
        looks(store, first, count - 1)
        store.backup(ROOT + ".backup")
    for how in ({}, {"readonly": True}, {"follow": True, "readonly": True}):
        with MessageStore.open(ROOT, **{**OPTIONS, **how}) as store:
            assert store.wait_dispatched(60)
            looks(store, first, count - 1)
            found["after " + "".join(how)] = held()
            own()
    print(json.dumps(found))


main()
