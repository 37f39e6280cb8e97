"""A slave's directory becomes a master's: promote(). RocketMQ has no such step: an operator edits broker.conf, and what the
slave knows more, or less, than the old master shows later.

The order of the steps is what makes it safe to die in any of them, twice. (1) Nobody has the directory open, and the old master
does not answer. (2) The store opens as a slave without a master: recovery cuts a torn end, dispatch completes the queues,
everything is flushed. (3) Every file that changes is copied to .salvage/. (4) Offsets of groups and of delay levels that lie
behind the end of their queue come back to it, and what the old master had delivered of timer messages counts as delivered. (5)
config/replica.json says "master". Before (5) the directory is a slave's and the next call does all of it again; (4) changes
nothing the second time. Behind (5) it is a master's. Control plane; one thread.
"""
import errno
import os
import socket
from contextlib import suppress
from typing import Any, NamedTuple

from rmq_store.base.io._io import IoTable
from rmq_store.base.io.files import ControlFiles, open_regular
from rmq_store.codec.delay import SCHEDULE_TOPIC
from rmq_store.config.load import resolve
from rmq_store.errors import MasterAlive, NotASlave, StoreLocked, StoreStateError, illegal
from rmq_store.events import Event, emit
from rmq_store.log.recovery import lockfile
from rmq_store.log.recovery.places import Places, need_store, refuse_file, root_of
from rmq_store.log.recovery.salvage import keep
from rmq_store.remoting.client import split_address
from rmq_store.replication.mark import NAME, Mark, read_mark, write_mark
from rmq_store.services.consumer.config_file import ConfigFile
from rmq_store.services.delay.service import delay_offsets
from rmq_store.services.timer.service import promote_check
from rmq_store.store import MessageStore
from rmq_store.upkeep.promoting.delays import delivered

__all__ = ["Promotion", "promote"]

ROLES = "master", "sync_master"
PROBE_S = 3.0
FILES = (NAME, "consumerOffset.json", "lmqConsumerOffset.json", "delayOffset.json", "timercheck")


class Promotion(NamedTuple):
    """What promote() did.

    path: the directory. role: what it is now. master: the HA address of the old master, "" where nobody knew it.
    min_log_offset, max_log_offset: the log that is there; messages that the old master stored at max_log_offset or behind it
    are missing. moved: (group, topic, queue id, offset before, offset now) of groups whose offset lay behind the end of a
    queue. kept: paths of the copies of the files that changed. was: "slave"; or the role to which the directory had been
    promoted before, and then nothing but the role has changed.
    """

    path: str
    role: str
    master: str
    min_log_offset: int
    max_log_offset: int
    moved: list[tuple[str, str, int, int, int]]
    kept: list[str]
    was: str = "slave"


def promote(path: str | bytes | os.PathLike[Any], *, to: str | None = None, force: bool = False,
            _io: IoTable | None = None, **options: Any) -> Promotion:
    """Makes the slave in directory `path` a master. Returns what it did, when that is durable.

    to: "master" or "sync_master": the role in which you open it next, which the directory remembers; None: "master". A
    directory that was promoted before gets another role if `to` names it, and nothing else of it changes then. force: also
    while the old master answers, and also for a directory that says nothing of a role, as that of a Java broker. options: those
    of MessageStore.open, where the directory needs some; a role among them is refused unless it is the slave's. Nobody may have
    the directory open. A call that died is begun anew.
    Raises MasterAlive, NotASlave, StoreLocked, ArgumentIllegal, and what MessageStore.open raises. Thread-safety: one call at a
    time for a directory. """
    root = root_of(path)
    if to is not None and to not in ROLES:
        raise illegal("to", to, "give 'master' or 'sync_master'")
    for name in ("role", "brokerRole"):
        if str(options.get(name, "slave")).lower() != "slave":      # those of the slave may be given as they are
            raise illegal(name, options[name], "leave it out, and name the new role in to (--to)")
    refuse_file(root)
    if not os.path.isdir(root):
        raise FileNotFoundError(errno.ENOENT, "not a message store: the directory does not exist (is its disk mounted?)", root)
    mark = read_mark(root)
    if mark is None:
        more = {name: value for name, value in options.items() if name not in ("profile", "config")}
        need_store(Places(root, resolve(options.get("profile"), more, root, config=options.get("config"))))
    if lockfile.in_use(root):
        locked = StoreLocked(root, lockfile.holder(os.path.join(root, "lock")))
        locked.add_note("a slave that `rmqstore follow` or `rmqstore serve` has open cannot become a master: stop that "
                        "process first")
        raise locked
    was: Any = mark.role if mark is not None else "slave"
    if was != "slave" and to in (None, was):
        raise NotASlave(root, f"it was promoted to {was} before", "to change its role, name the other one in to (--to)")
    if not force and mark is None:
        raise NotASlave(root, "it has no config/replica.json, which a slave of this library writes")
    if not force and mark is not None and was == "slave":
        for address in dict.fromkeys((mark.master, mark.broker)):
            if address and _answers(address):
                raise MasterAlive(root, address)
    given = {name: value for name, value in options.items() if name not in ("role", "brokerRole", "ha_listen", "haListenPort")}
    io = _io if _io is not None else IoTable()
    role = to or "master"
    if was == "sync_master":
        given["ha_listen"] = "127.0.0.1:0"      # which the role needs; without services nothing listens
    with MessageStore.open(root, must_exist=True, _services=False, _io=io, role=was, **given) as store:
        if mark is None or was == "slave":
            done = _promote(store, ControlFiles(io), role, mark)
        else:
            done = _change_role(store, ControlFiles(io), role, mark)
    if was == "slave":
        emit(Event.PROMOTED, path=root, master=done.master or "an unknown master", role=role, offset=done.max_log_offset)
    else:
        emit(Event.ROLE_CHANGED, path=root, before=was, role=role)
    return done


def _change_role(store: MessageStore, files: ControlFiles, role: str, mark: Mark) -> Promotion:
    """Of what was promoted before: its log and its groups are a master's already."""
    root = store.path
    kept = [keep(files, root, f"promotion-{name}", data) for name, data in _before(root) if name == NAME]
    write_mark(files, root, mark._replace(role=role, since_ms=files.wall_ms()))
    return Promotion(root, role, mark.master, store.min_log_offset, store.max_log_offset, [], kept, mark.role)


def _promote(store: MessageStore, files: ControlFiles, to: str, mark: Mark | None) -> Promotion:
    """Steps 2 to 5; the store holds the lock of the directory."""
    root = store.path
    store.flush()
    if not store.wait_dispatched(600):
        raise StoreStateError(f"the queues of {root} are not complete after 600 s: run the command again")
    kept = [keep(files, root, f"promotion-{name}", data) for name, data in _before(root)]
    moved = _move_offsets(store)
    _move_delays(store, files)
    promote_check(files, root, store.min_log_offset, store.max_log_offset)
    master, broker = (mark.master, mark.broker) if mark is not None else ("", "")
    write_mark(files, root, Mark(to, master, broker, files.wall_ms()))
    return Promotion(root, to, master, store.min_log_offset, store.max_log_offset, moved, kept)


def _before(root: str) -> list[tuple[str, bytes]]:
    found = []
    for name in FILES:
        with suppress(FileNotFoundError), open(os.path.join(root, "config", name), "rb", opener=open_regular) as file:
            found.append((name, file.read()))
    return found


def _move_offsets(store: MessageStore) -> list[tuple[str, str, int, int, int]]:
    """A group that had read messages which never came here would pass over the first new ones at their offsets."""
    moved = store.offsets.turn_back(store.max_offset)
    if moved:
        store.offsets.flush()
    return moved


def _move_delays(store: MessageStore, files: ControlFiles) -> None:
    """What the old master had delivered of delayed messages counts as delivered; and no level is ahead of its queue, or its
    first new messages would not be delivered. A number that is no level's is left as the master had it."""
    before = delay_offsets(files, store.path)
    now = {level: max(0, min(offset, store.max_offset(SCHEDULE_TOPIC, level - 1))) if 0 < level < 1 << 31 else offset
           for level, offset in delivered(store, before).items()}
    if now != before:
        files.make_dirs(os.path.join(store.path, "config"))
        file = ConfigFile(files, store.path, "delayOffset.json")
        content = file.load(lambda found: dict(found)) or {}
        file.save(content | {"offsetTable": dict(sorted(now.items()))})


def _answers(address: str) -> bool:
    """Whether somebody accepts a connection there."""
    try:
        host, port = split_address(address)
    except ValueError:
        return False
    try:
        with socket.create_connection((host, port), timeout=PROBE_S):
            return True
    except OSError:
        return False


