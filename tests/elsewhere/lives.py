"""A writer between two lives of its topics, for tests of readers that follow."""
import random
from typing import Any

from rmq_store import MessageStore

__all__ = ["between_lives"]


def between_lives(rng: random.Random, writer: MessageStore, topics: list[str], **options: Any) -> MessageStore:
    """By chance: some of `topics` are deleted, the log is cleaned, the writer closes and comes again. Returns the writer."""
    if topics and rng.random() < 0.7:
        writer.delete_topics(*rng.sample(topics, rng.randrange(1, len(topics) + 1)))
    if rng.random() < 0.5:
        writer.flush()
        writer.clean(0, pace_ms=0)
    if rng.random() < 0.3:
        writer.close()
        writer = MessageStore.open(writer.path, **options)
    return writer
