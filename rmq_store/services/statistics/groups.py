"""Counters by group, topic and queue: typed, and under RocketMQ's names (RocketMQ: BrokerStatsManager).

RocketMQ keeps them for the last minute, hour and day; here they count from the opening of the store on, and a difference of two
readings is a rate. Any thread.
"""
from collections.abc import Iterable, Mapping
from typing import TypedDict

from rmq_store.services.consumer.counts import GroupCounts
from rmq_store.services.statistics.report import Durations, durations

__all__ = ["GroupStats", "broker_stats", "group_stats"]


class GroupStats(TypedDict):
    """What the consumers of this process got of one topic for one group since the opening. Bytes are of records."""

    group: str
    topic: str              # %RETRY%group for messages that were tried again
    gets: int               # that found messages
    messages: int
    bytes: int
    disk_messages: int      # of them, those far from the log's end (memory_ratio_pct): see GetResult
    disk_bytes: int
    get_times: Durations    # of those gets
    fall_bytes: int         # how far behind the end of the log the last get was, of the queue that was most behind
    fall_ms: int            # the same in time: how old its newest message was
    sent_back: int          # messages that failed
    dead_letters: int       # of them, those that went to %DLQ%


def group_stats(counts: Iterable[GroupCounts]) -> list[GroupStats]:
    return [_row(c) for c in counts if c.gets or c.sent_back]


def _row(c: GroupCounts) -> GroupStats:
    queues = [queue for _, queue in c.queues()]
    return {"group": c.group, "topic": c.topic, "gets": c.gets, "messages": sum(q.messages for q in queues),
            "bytes": sum(q.bytes for q in queues), "disk_messages": c.disk_messages, "disk_bytes": c.disk_bytes,
            "get_times": durations(c.times), "fall_bytes": max((q.behind_bytes for q in queues), default=0),
            "fall_ms": max((q.behind_ms for q in queues), default=0), "sent_back": c.sent_back, "dead_letters": c.dead_letters}


def broker_stats(queues: Mapping[tuple[str, int], tuple[int, int]],
                 counts: Iterable[GroupCounts]) -> dict[str, dict[str, float]]:
    """queues: (topic, queue id) -> messages, bytes. Keys of items: topic, topic@queueId, topic@group, topic@queueId@group, and
    queueId@topic@group for GROUP_GET_FALL_*."""
    items: dict[str, dict[str, float]] = {name: {} for name in (
        "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "QUEUE_PUT_NUMS", "QUEUE_PUT_SIZE", "QUEUE_GET_NUMS", "QUEUE_GET_SIZE",
        "GROUP_GET_NUMS", "GROUP_GET_SIZE", "GROUP_GET_FROM_DISK_NUMS", "GROUP_GET_FROM_DISK_SIZE", "GROUP_GET_LATENCY",
        "GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME", "SNDBCK_PUT_NUMS")}
    for (topic, queue_id), (count, size) in sorted(queues.items()):
        for kind, value in (("NUMS", count), ("SIZE", size)):
            items[f"QUEUE_PUT_{kind}"][f"{topic}@{queue_id}"] = value
            by_topic = items[f"TOPIC_PUT_{kind}"]
            by_topic[topic] = by_topic.get(topic, 0) + value
    for c in counts:
        key = f"{c.topic}@{c.group}"
        got = c.queues()
        for queue_id, queue in got:
            items["QUEUE_GET_NUMS"][f"{c.topic}@{queue_id}@{c.group}"] = queue.messages
            items["QUEUE_GET_SIZE"][f"{c.topic}@{queue_id}@{c.group}"] = queue.bytes
            items["GROUP_GET_FALL_SIZE"][f"{queue_id}@{key}"] = queue.behind_bytes
            items["GROUP_GET_FALL_TIME"][f"{queue_id}@{key}"] = queue.behind_ms
        if got:
            items["GROUP_GET_NUMS"][key] = sum(queue.messages for _, queue in got)
            items["GROUP_GET_SIZE"][key] = sum(queue.bytes for _, queue in got)
            items["GROUP_GET_LATENCY"][key] = c.times.mean * c.times.count / 1e6
        if c.disk_messages:
            items["GROUP_GET_FROM_DISK_NUMS"][key] = c.disk_messages
            items["GROUP_GET_FROM_DISK_SIZE"][key] = c.disk_bytes
        if c.sent_back:
            items["SNDBCK_PUT_NUMS"][key] = c.sent_back
    return items
