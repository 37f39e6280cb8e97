"""Topics that are asked for and that no store has: a warning, because a log may have messages that no queue leads to."""
import difflib
import os
import re
import warnings

from rmq_store.spark.options import ReadOptions

__all__ = ["unknown_topics", "warn_of_unknown_topics"]


def unknown_topics(options: ReadOptions) -> list[str]:
    """What to say of each topic, or pattern, that has no queue in any of the stores; nothing where a store has no queues at
    all, as a directory of log files. Lists names only."""
    known: set[str] = set()
    for broker in options.brokers:
        try:
            known.update(os.listdir(os.path.join(broker.root, "consumequeue")))
        except (FileNotFoundError, NotADirectoryError):
            return []
    if not known:
        return []
    where = ", ".join(broker.root for broker in options.brokers)
    asked = dict.fromkeys(options.subscribe or ())
    for rows in (options.assign, options.starting_offsets, options.ending_offsets):
        asked |= dict.fromkeys(row[0] for row in rows or () if isinstance(row, tuple))
    found = []
    for topic in asked:
        if topic not in known:
            near = difflib.get_close_matches(topic, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"`rmqstore stat` lists the {len(known)} there are"
            found.append(f"topic {topic!r} has no queue in {where}: {hint}")
    pattern = options.subscribe_pattern
    if pattern is not None and not any(re.fullmatch(pattern, topic) for topic in known):
        found.append(f"no topic with a queue in {where} fits subscribePattern {pattern!r}: it has to fit the whole name")
    return found


def warn_of_unknown_topics(options: ReadOptions, level: int = 3) -> None:
    """Warns of each, as of `level` calls above."""
    for text in unknown_topics(options):
        warnings.warn(text, UserWarning, stacklevel=level)
