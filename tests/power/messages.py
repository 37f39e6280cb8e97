"""What is put: each message follows from the seed, its producer and its number; so whoever finds it knows what it must be."""
import functools
import random
from dataclasses import dataclass
from typing import Any

TOPICS = ("orders", "bills", "mail")
QUEUES = 2
# What the store itself adds to a message's properties.
ADDED = ("UNIQ_KEY", "WAIT", "DELAY", "REAL_TOPIC", "REAL_QID", "__CRC32#", "INNER_NUM", "CLUSTER")


@dataclass(frozen=True)
class Message:
    topic: str
    queue_id: int
    body: bytes
    tags: str | None
    keys: str | None
    properties: dict[str, str]

    @property
    def stored(self) -> dict[str, str]:
        """All properties that the stored message has, but those of ADDED."""
        more = {"TAGS": self.tags, "KEYS": self.keys}
        return self.properties | {name: value for name, value in more.items() if value is not None}

    def arguments(self) -> dict[str, Any]:
        """For put, but topic, body and queue."""
        return {"tags": self.tags, "keys": self.keys, "properties": self.properties}

    def in_batch(self) -> dict[str, Any]:
        """For put_many."""
        found = {"body": self.body, "tags": self.tags, "keys": self.keys, "properties": self.properties}
        return {name: value for name, value in found.items() if value is not None}


@functools.lru_cache(maxsize=10_000)
def message(seed: int, producer: int, number: int, body_max: int) -> Message:
    r = random.Random(f"{seed}/{producer}/{number}")
    size = r.randrange(1 + min(body_max, r.choice((0, 10, 100, 700, 3000, body_max, body_max, body_max))))
    # One in four queues is hot: it goes through many of its files between two flushes.
    topic, queue_id = r.choice((("orders", 0), ("orders", 0), (r.choice(TOPICS), r.randrange(QUEUES))))
    return Message(topic, queue_id, b"%03d-%08d|" % (producer, number) + r.randbytes(size), r.choice(("new", "paid", None)),
                   f"key-{producer}-{number}" if r.random() < 0.7 else None,
                   {f"name{i}": "v" * r.randrange(r.choice((10, 60, 600, 3000))) + str(number) for i in range(r.randrange(4))})


def who(body: bytes) -> tuple[int, int] | None:
    """(producer, number) of a body, None for what was never put."""
    if len(body) < 13 or body[3:4] != b"-" or body[12:13] != b"|" or not (body[:3] + body[4:12]).isdigit():
        return None
    return int(body[:3]), int(body[4:12])
