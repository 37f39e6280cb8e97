"""Counters by group, topic and queue: typed, and under upstream's names (upstream: BrokerStatsManager).

Upstream keeps them for the last minute, hour and day; here they count from the opening of the store on, and a difference of two
readings is a rate. Any thread.
"""
from collections.abc import Iterable, Mapping
from typing import TypedDict

from rmq_store.consumer.counts import GroupCounts
from rmq_store.statistics.report import Durations, durations

__all__ = ["GroupStats", "broker_stats", "group_stats"]


class GroupStats(TypedDict):
    """What the consumers of this process got of one topic for one group since the opening. Bytes are of records."""

    group: str
    topic: str              # %RETRY%group for messages that were tried again
    gets: int               # that found messages
    messages: int
    bytes: int
    get_times: Durations    # of those gets
    fall_bytes: int         # how far behind the end of the log the last get was, of the queue that was most behind
    fall_ms: int            # the same in time: how old its newest message was
    sent_back: int          # messages that failed
    dead_letters: int       # of them, those that went to %DLQ%


def group_stats(counts: Iterable[GroupCounts]) -> list[GroupStats]:
    return [{"group": c.group, "topic": c.topic, "gets": c.gets, "messages": c.messages, "bytes": c.bytes,
             "get_times": durations(c.times), "fall_bytes": max((size for size, _ in list(c.behind.values())), default=0),
             "fall_ms": max((ms for _, ms in list(c.behind.values())), default=0), "sent_back": c.sent_back,
             "dead_letters": c.dead_letters} for c in counts if c.gets or c.sent_back]


def broker_stats(queues: Mapping[tuple[str, int], tuple[int, int]],
                 counts: Iterable[GroupCounts]) -> dict[str, dict[str, float]]:
    """queues: (topic, queue id) -> messages, bytes. Keys of items: topic, topic@queueId, topic@group, queueId@topic@group."""
    items: dict[str, dict[str, float]] = {name: {} for name in (
        "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "QUEUE_PUT_NUMS", "QUEUE_PUT_SIZE", "GROUP_GET_NUMS", "GROUP_GET_SIZE",
        "GROUP_GET_LATENCY", "GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME", "SNDBCK_PUT_NUMS")}
    for (topic, queue_id), (count, size) in sorted(queues.items()):
        for kind, value in (("NUMS", count), ("SIZE", size)):
            items[f"QUEUE_PUT_{kind}"][f"{topic}@{queue_id}"] = value
            by_topic = items[f"TOPIC_PUT_{kind}"]
            by_topic[topic] = by_topic.get(topic, 0) + value
    for c in counts:
        key = f"{c.topic}@{c.group}"
        if c.gets:
            items["GROUP_GET_NUMS"][key] = c.messages
            items["GROUP_GET_SIZE"][key] = c.bytes
            items["GROUP_GET_LATENCY"][key] = c.times.mean * c.times.count / 1e6
        for queue_id, (size, ms) in sorted(c.behind.items()):
            items["GROUP_GET_FALL_SIZE"][f"{queue_id}@{key}"] = size
            items["GROUP_GET_FALL_TIME"][f"{queue_id}@{key}"] = ms
        if c.sent_back:
            items["SNDBCK_PUT_NUMS"][key] = c.sent_back
    return items
