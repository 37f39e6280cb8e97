"""`rmqstore topics`: what a broker would know of the topics of a store (config/topics.json), and removing queues.

list reads beside a running writer; the others open the store for writing. mqadmin: topicList, updateTopic, deleteTopic,
cleanUnusedTopic, cleanExpiredCQ.
"""
import argparse
from typing import Any

from rmq_store.cli.common import NAME, NothingFound, open_store, store_arguments, table_name
from rmq_store.cli.exits import FINDINGS, FINE
from rmq_store.cli.output import Output, size_text
from rmq_store.errors import ConfigError
from rmq_store.services.cleaning.removing import RemovedQueues, expired_queues, is_system_topic
from rmq_store.services.consumer.light_offsets import LMQ_PREFIX
from rmq_store.services.consumer.tables import CLEANUP_POLICIES, PERM_READ, PERM_WRITE, QUEUE_TYPES, cleanup_policy, queue_type

PERMISSIONS = {"r": PERM_READ, "w": PERM_WRITE, "rw": PERM_READ | PERM_WRITE}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "set", "delete", "unused", "expired", "compact"),
                        help="list: the topics of the file and of the queues; set: make or change an entry; delete: delete the "
                        "entry, the queues and the groups' offsets of a topic (its messages stay in the log until cleaning "
                        "deletes them); unused: delete all topics except those of the file, those of --keep and RocketMQ's "
                        "own; expired: remove queues whose messages are all deleted; compact: compact the topic, or all "
                        "compaction topics, now")
    store_arguments(parser)
    parser.add_argument("-t", "--topic", type=NAME, action="append", default=[], help="for set and delete: the topic; for "
                        "list and compact: only this topic")
    parser.add_argument("-r", "--read-queues", type=int, metavar="N", help="for set: number of queues to read (default 4)")
    parser.add_argument("-w", "--write-queues", type=int, metavar="N", help="for set: number of queues to write (default 4)")
    parser.add_argument("-p", "--perm", choices=PERMISSIONS, help="for set: what clients may do (default rw)")
    parser.add_argument("--order", choices=("true", "false"), help="for set: whether the topic is an order topic (default "
                        "false)")
    parser.add_argument("--cleanup-policy", choices=CLEANUP_POLICIES, help="for set: COMPACTION keeps the newest message of "
                        "each key, and refuses messages without keys; DELETE (the default) keeps all messages until cleaning "
                        "deletes them")
    parser.add_argument("--queue-type", choices=QUEUE_TYPES, help="for set: BatchCQ gives a new topic batch queues, for inner "
                        "batches; the type of a topic never changes (default SimpleCQ)")
    parser.add_argument("--keep", type=NAME, action="append", default=[], metavar="TOPIC", help="for unused: keep this topic")
    parser.add_argument("-n", "--dry-run", action="store_true", help="for delete, unused and expired: only list what would be "
                        "deleted; for compact: only count what would stay, in the compaction logs as they are")


def run(args: argparse.Namespace, out: Output) -> int:
    if args.action == "list":
        return _list(args, out)
    if args.action in ("set", "delete") and not args.topic:
        raise ConfigError(f"topics {args.action} needs --topic")
    with open_store(args, readonly=args.dry_run) as store:
        if args.action == "set":
            return _set(store, args, out)
        if args.action == "compact":
            return _compact(store, args, out)
        if args.action == "expired":
            going = [(topic, queue_id) for _, topic, queue_id, *_ in expired_queues(store, store.topic_table.compacted())]
            return _say(out, RemovedQueues(going), True) if args.dry_run else _say(out, store.clean_expired_queues())
        names = args.topic
        if args.action == "unused":
            keep = {*args.keep, *store.topic_table.names()}
            if not keep:
                raise ConfigError("config/topics.json names no topic, so all would be deleted: name those in use with --keep")
            names = [t for t in store.topics() if t not in keep and not is_system_topic(t)]
        unknown = [t for t in names if t not in store.topics() and store.topic_table.get(t) is None]
        if unknown:
            raise NothingFound(f"topic {unknown[0]} does not exist: it has neither a queue nor an entry in config/topics.json")
        if args.dry_run:
            return _say(out, RemovedQueues([(t, q) for t in names for q in store.queues(t)]), True)
        return _say(out, store.delete_topics(*names))


def _set(store: Any, args: argparse.Namespace, out: Output) -> int:
    for what, number in (("--read-queues", args.read_queues), ("--write-queues", args.write_queues)):
        if number is not None and not 1 <= number <= 65_535:
            raise ConfigError(f"{what} {number}: give a number from 1 to 65535")
    given = {"readQueueNums": args.read_queues, "writeQueueNums": args.write_queues,
             "perm": args.perm and PERMISSIONS[args.perm], "order": args.order and args.order == "true"}
    for topic in args.topic:
        entry = store.topic_table.set(table_name("topic", topic), **{k: v for k, v in given.items() if v is not None})
        if args.cleanup_policy:
            if store.options.compat != "5.x":
                raise ConfigError("--cleanup-policy: topics of a store of compat 4.9 have no cleanup policy, open it with 5.x")
            entry = store.topic_table.set_cleanup_policy(topic, args.cleanup_policy)
        if args.queue_type:
            if store.options.compat != "5.x":
                raise ConfigError("--queue-type: topics of a store of compat 4.9 have no queue type, open it with 5.x")
            entry = store.topic_table.set_queue_type(topic, args.queue_type)
        _show(out, topic, entry, store.queues(topic))
    store.topic_table.flush()
    return FINE


def _compact(store: Any, args: argparse.Namespace, out: Output) -> int:
    kind, keeps = ("would_compact", "keeps") if args.dry_run else ("compacted", "kept")
    for topic in args.topic:
        if topic not in store.topic_table.compacted():
            raise NothingFound(f"topic {topic} is not a compaction topic: `rmqstore topics set --cleanup-policy COMPACTION` "
                               "makes it one")
    found = [done for topic in args.topic or [None] for done in store.compact(topic, dry_run=args.dry_run)]
    if not found:
        out.say("nothing to compact" if store.topic_table.compacted() else "there is no compaction topic")
    for done in found:
        if out.as_json:
            out.record({"kind": kind, **done._asdict()})
        else:
            out.line(f"{kind.replace('_', ' ')}  {done.topic}/{done.queue_id}  {keeps} {done.kept} of {done.messages} "
                     f"messages, {size_text(done.kept_size)} of {size_text(done.size)}")
    return FINE


def _list(args: argparse.Namespace, out: Output) -> int:
    with open_store(args, readonly=True) as store:
        rows = [(topic, store.topic_table.get(topic), store.queues(topic)) for topic in sorted({*store.topic_table.names(),
                *store.topics()}) if not args.topic or topic in args.topic]
    for row in rows:
        _show(out, *row)
    return FINE if rows else FINDINGS


def _show(out: Output, topic: str, entry: dict[str, Any] | None, queues: list[int]) -> None:
    if out.as_json:
        out.record({"kind": "topic", "topic": topic, "entry": entry, "queues": queues})
        return
    said = "a light queue" if topic.startswith(LMQ_PREFIX) else "not in config/topics.json"
    if entry is not None:
        perm = entry.get("perm", 0)
        may = (''.join(name for name, bit in PERMISSIONS.items() if name != "rw" and perm & bit) or "none"
               if isinstance(perm, int) else repr(perm))
        said = (f"read queues {entry.get('readQueueNums')}, write queues {entry.get('writeQueueNums')}, perm {may}"
                + (", order" if entry.get("order") else ""))
        policy = cleanup_policy(entry)
        said += "" if policy == "DELETE" else f", cleanup policy {policy}"
        kind = queue_type(entry)
        said += "" if kind == "SimpleCQ" else f", queue type {kind}"
    out.line(f"{topic}  {said}; {len(queues)} queues have or had messages")


def _say(out: Output, done: RemovedQueues, dry: bool = False) -> int:
    for word, queues in (("would_remove" if dry else "removed", done.removed), ("pending", done.pending), ("kept", done.kept)):
        for topic, queue_id in queues:
            if out.as_json:
                out.record({"kind": word, "topic": topic, "queue_id": queue_id})
            else:
                out.line(f"{word.replace('_', ' ')}  {topic}/{queue_id}")
    out.say(f"{len(done.removed)} queues" + (" would be removed" if dry else " removed"))
    return FINE if not done.kept else FINDINGS
