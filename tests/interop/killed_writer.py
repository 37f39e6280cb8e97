"""A process that is going to be killed: fills a store, says so, goes on writing until it is.

    killed_writer.py PATH CASE OPTIONS-AS-JSON

Prints the offset of every acknowledged message on a line of its own, and `filled` when the case is complete.
"""
import json
import random
import sys

from rmq_store import MessageStore
from tests.interop import content


def main() -> None:
    path, name, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    store = MessageStore.open(path, **options)
    for offset in content.fill(store, content.CASES[name]):
        print(offset, flush=True)
    print("filled", flush=True)
    rng = random.Random(1)
    for i in range(3000):
        result = store.put("AfterTopic", rng.randbytes(rng.randrange(300)), queue_id=i % 2, keys=f"after-{i}")
        print(result.offset, flush=True)
    sys.stdin.read()    # nothing left to write: wait for the end


if __name__ == "__main__":
    main()
