"""What a slave copies of its master beside the log: topics, groups, consumer offsets, delay offsets, and how far timer messages
are (RocketMQ: SlaveSynchronize, BrokerOuterAPI).

One thread asks the master's broker, ours or a real one, at its own port. A Java slave asks for 21, 60 and 61 at the port two
below. There another broker may listen, whose topics are none of this log's; and every broker answers them at its own as well.
Topics and groups are replaced where the master's dataVersion differs; offsets are set where they differ, once this log has what
they stand for: the slave asks the master where its log ends (28), and waits for that. What a master does not know (402 in 4.9,
60 and 61 without timers) is left out. The files are RocketMQ's. Control plane.
"""
import json
import os
import struct
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rmq_store.base.io.files import ControlFiles
from rmq_store.base.io.threads import start_thread
from rmq_store.config.upstream_json import int_keys, parse_json
from rmq_store.errors import RmqStoreError, StoreClosed, StoreStateError
from rmq_store.events import Event, emit
from rmq_store.remoting.client import Client, NoAnswer
from rmq_store.services.consumer.config_file import ConfigFile
from rmq_store.services.consumer.tables import queue_type
from rmq_store.services.timer.service import CHECK, copy_check

if TYPE_CHECKING:
    import ssl

__all__ = ["Metadata"]

TOPICS, RUNTIME, OFFSETS, DELAYS, TIMER_CHECK, TIMER_METRICS, GROUPS, MODES = 21, 28, 43, 45, 60, 61, 201, 402
NAMED = {TOPICS: ("Topic", "topicConfigTable"), GROUPS: ("Group", "subscriptionGroupTable")}
PIECE, PIECES_MAX = 50_000, 1000        # rows of a piece at most, and pieces of a table
OPTIONAL = (RUNTIME, MODES, TIMER_METRICS, TIMER_CHECK)
NOT_SUPPORTED = 3
OFFSET_END, NUMBER_END = 1 << 63, 1 << 62       # the timer counts on from its numbers
LOOK_S = 0.02           # between two looks at the end of the log
AGREE_S = 0.1           # between two looks whether the log is this master's
JOIN_S = 1.0            # how long `stop` waits for a thread that has no more to do than to notice it


# What is done with an answer: with the store, and the body.
Take = Callable[[Any, bytes], None]


class Metadata:
    """Copies from `master` (HOST:PORT of its broker) every `interval_ms`, until stop(). Holds the store weakly. Any thread."""

    def __init__(self, store: Any, files: ControlFiles, master: str, interval_ms: int,
                 begin: Callable[[], object] = lambda: None, agrees: Callable[[], bool] = lambda: True,
                 tls: "ssl.SSLContext | None" = None) -> None:
        """begin: called once, in the thread of this object, when topics were copied or could not be: the messages of a topic
        that come before its entry would get queues of the usual type. agrees: while it says no, nothing is copied: another
        master's topics and offsets would take the place of those of this log. tls: None for a plain connection. Raises
        ValueError for an address that is none."""
        self._begin, self._agrees, self._tls = begin, agrees, tls
        self._version = version = 479 if store.options.compat == "5.x" else 409
        self.master = master
        self._store, self._path = weakref.ref(store), store.path
        self._files, self._interval_s = files, interval_ms / 1000
        self._delays = ConfigFile(files, store.path, "delayOffset.json")
        self._modes = ConfigFile(files, store.path, "messageRequestMode.json")
        self._metrics = ConfigFile(files, store.path, "timermetrics")
        self._client = Client(master, version=version, tls=tls)
        self._writing = threading.Lock()        # held while files change: stop() waits for that, and for no peer
        self._wake, self._ended = threading.Event(), threading.Event()
        self._stopped = self._said_fine = False
        self._failed = ""
        self.copied_ms: int | None = None       # when all of it was last copied, ms since 1970
        # Offsets that the master has told, and where its log ended then: written when this log has as much.
        self._held: list[tuple[Take, bytes]] = []
        self._held_end = 0
        self.thread = start_thread(self._run, "rmq-replica-metadata")

    def stop(self) -> None:
        """Copies nothing more. Does not wait for a peer, and not long for a look-up of a name: the thread of that ends by
        itself, and writes nothing."""
        with self._writing:
            self._stopped = True
        self._ended.set()
        self._wake.set()
        self._client.close()
        if threading.current_thread() is not self.thread:
            self.thread.join(JOIN_S)

    def _run(self) -> None:
        while not self._stopped:
            self._wake.clear()
            agrees = self._agrees()
            if agrees and not self._round():
                return
            self._wake.wait(self._interval_s if agrees else min(AGREE_S, self._interval_s))

    def _round(self) -> bool:
        """False: the store is closed, or gone."""
        try:
            self.copy()
        except StoreStateError:
            return False
        except (OSError, ValueError, RmqStoreError) as error:
            if not self._stopped and str(error) != self._failed:
                self._failed = str(error)
                emit(Event.METADATA_FAILED, path=self._path, peer=self.master, reason=self._failed)
        except Exception as error:      # of whatever kind: the next round tries again
            if str(error) != self._failed:
                self._failed = str(error)
                emit(Event.METADATA_FAILED, path=self._path, peer=self.master, reason=repr(error))
        else:
            if self._failed or not self._said_fine:
                emit(Event.METADATA_COPIED, path=self._path, peer=self.master)
            self._failed, self._said_fine = "", True
        try:
            if self._agrees() and not self._stopped:
                self._begun()
        except Exception as error:      # the next round tries again
            emit(Event.METADATA_FAILED, path=self._path, peer=self.master, reason=repr(error))
        return True

    def _begun(self) -> None:
        self._begin()
        self._begin = lambda: None

    def copy(self) -> None:
        """One round, in the thread that calls. Raises OSError, ValueError, StoreClosed."""
        now: tuple[tuple[int, Take], ...] = ((TOPICS, self._take_topics), (GROUPS, self._take_groups),
                                             (MODES, self._take_modes), (TIMER_METRICS, self._take_metrics))
        self._master_end()
        for code, take in now:
            if (body := self._asked(code)) is not None:
                self._apply(take, body)
            if code == TOPICS:
                self._begun()
        if not self._held or self._master_end() < self._held_end:       # the latter: a master that lost the end of its log
            later: tuple[tuple[int, Take], ...] = ((OFFSETS, self._take_offsets), (DELAYS, self._take_delays),
                                                   (TIMER_CHECK, self._take_check))
            self._held = [(take, body) for code, take in later
                          if (body := self._asked(code)) is not None]
            self._held_end = self._master_end()
        if not self._has_log():
            return
        self._opened().flush()
        held, self._held = self._held, []
        for take, body in held:
            self._apply(take, body)
        self.copied_ms = int(time.time() * 1000)

    def queue_type(self, topic: str) -> str:
        """Which queues the topic has on the master now, SimpleCQ if it has no such topic. Any thread. Raises OSError, and
        ValueError for an answer that is none."""
        client = Client(self.master, version=self._version, tls=self._tls)
        try:
            table = _object(TOPICS, _asked_for(client, TOPICS)).get("topicConfigTable", {})
        finally:
            client.close()
        entry = table.get(topic) if isinstance(table, dict) else None
        return queue_type(entry if isinstance(entry, dict) else None)

    def _master_end(self) -> int:
        """Where the master's log ends, once it has told its offsets; 0 where it does not say that. Raises OSError for a broker
        that has less than this log: it is another one, or came back empty, and the slave's connection does not know it yet."""
        own = self._opened().max_log_offset
        body = self._asked(RUNTIME)
        table = {} if body is None else _object(RUNTIME, body).get("table", {})
        end = table.get("commitLogMaxOffset") if isinstance(table, dict) else None
        if not isinstance(end, str) or not end.isascii() or not end.isdecimal():
            return 0
        if int(end) < own:
            raise OSError(f"its log ends at offset {end:.20}, and this one at {own}: it is not this slave's master, or has "
                          "lost messages; nothing of it is taken over")
        return int(end)

    def _has_log(self) -> bool:
        """Whether this log has everything that the offsets stand for: what is counted as delivered or read there must not be
        missing here. Waits for it until the next round."""
        deadline = time.monotonic() + self._interval_s
        while self._opened().max_log_offset < self._held_end:
            if time.monotonic() >= deadline:
                return False
            self._ended.wait(LOOK_S)
        return True

    def _asked(self, code: int) -> bytes | None:
        """The body of an answer; None where this master has no such thing."""
        try:
            return _asked_for(self._client, code)
        except NoAnswer as error:
            if code in OPTIONAL:
                return None
            if error.code == NOT_SUPPORTED:     # a name server, or another port of the master
                raise OSError(f"it does not know request {code}, which every broker knows: give HOST:PORT of the master's "
                              "broker (ha_master_broker, --broker)") from None
            raise

    def _apply(self, take: Take, body: bytes) -> None:
        with self._writing:
            store = self._opened()
            if not self._agrees():
                raise OSError("the slave has lost its master meanwhile, and takes over nothing until it follows again")
            take(store, body)

    def _opened(self) -> Any:
        store = self._store()
        if store is None or self._stopped:
            raise StoreClosed(self._path)
        return store

    # ---- what is done with the answers

    def _take_topics(self, store: Any, body: bytes) -> None:
        store.topic_table.replace(_object(TOPICS, body))

    def _take_groups(self, store: Any, body: bytes) -> None:
        store.group_table.replace(_object(GROUPS, body))

    def _take_offsets(self, store: Any, body: bytes) -> None:
        if store.offsets.take_over(_object(OFFSETS, body)):
            store.offsets.flush()

    def _take_delays(self, store: Any, body: bytes) -> None:
        content = _object(DELAYS, body)
        content["offsetTable"] = table = dict(sorted(int_keys(content.get("offsetTable", {})).items()))
        if not all(type(offset) is int and 0 <= offset < OFFSET_END for offset in table.values()):
            raise ValueError(f"an offset of a delay level is no number of 63 bits: {table!r:.200}")
        self._delays.save(content)

    def _take_modes(self, store: Any, body: bytes) -> None:
        if body:
            self._modes.save(_object(MODES, body))

    def _take_metrics(self, store: Any, body: bytes) -> None:
        if body and store.options.timer_wheel_enable:
            self._metrics.save(_object(TIMER_METRICS, body))

    def _take_check(self, store: Any, body: bytes) -> None:
        """The slave has no timer log. So it keeps the number of its own queue at 0, as a Java slave that has read nothing."""
        if not store.options.timer_wheel_enable or len(body) < CHECK.size:
            return
        try:
            check = CHECK.unpack_from(body)
        except struct.error as error:
            raise ValueError(str(error)) from None
        if min(check) < 0 or max(check) >= NUMBER_END:
            raise ValueError(f"a number of the timer's is below 0, or {NUMBER_END} or more: {check}")
        if any(check):
            self._files.make_dirs(os.path.join(self._path, "config"))
            copy_check(self._files, self._path, check)


def _asked_for(client: Client, code: int) -> bytes:
    """The body of the answer. Tables come in pieces from a broker that has them (broker/pieces.py), and whole from others."""
    if code in NAMED:
        return _named(client, code, *NAMED[code])
    return _offsets(client) if code == OFFSETS else client.ask(code).body


def _named(client: Client, code: int, unit: str, key: str) -> bytes:
    rows: dict[str, Any] = {}
    version: Any = None
    for _ in range(PIECES_MAX):
        ext = {f"{unit.lower()}Seq": str(len(rows)), f"max{unit}Num": str(PIECE)}
        answer = client.ask(code, ext if version is None else ext | {"dataVersion": json.dumps(version, separators=(",", ":"))})
        total = answer.ext.get(f"total{unit}Num")
        if total is None:
            return answer.body
        content = _object(code, answer.body)
        if content.get("dataVersion") != version:       # it has changed, and begins anew
            rows, version = {}, content.get("dataVersion")
        piece = content.get(key)
        if not isinstance(piece, dict) or not total.isascii() or not total.isdecimal():
            raise ValueError(f"a piece of the answer to request {code} is none")
        rows.update(piece)
        if len(rows) >= int(total):
            return json.dumps(content | {key: rows}).encode()
        if not piece:
            break
    raise OSError(f"its table changes all the time, or ends before the {total} rows that it has: request {code} is asked again")


def _offsets(client: Client) -> bytes:
    rows: dict[str, Any] = {}
    last = ""
    for _ in range(PIECES_MAX):
        answer = client.ask(OFFSETS, {"maxOffsetNum": str(PIECE), "offsetAfter": last})
        more = answer.ext.get("offsetMore")
        if more is None:
            return answer.body
        content = _object(OFFSETS, answer.body)
        piece = content.get("offsetTable")
        if not isinstance(piece, dict):
            raise ValueError(f"a piece of the answer to request {OFFSETS} is none")
        rows.update(piece)
        last = max(piece, default="")
        if more != "true" or not piece:
            return json.dumps(content | {"offsetTable": rows}).encode()
    raise OSError("its table of offsets has no end")


def _object(code: int, body: bytes) -> dict[str, Any]:
    try:
        found = parse_json(body.decode())
    except ValueError as error:
        raise ValueError(f"the answer to request {code} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"the answer to request {code} is no JSON object: {found!r:.80}")
    return found
