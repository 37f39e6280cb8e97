"""Broker: a store that RocketMQ clients reach over a network (RocketMQ: BrokerStartup, BrokerController, NamesrvStartup)."""
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rmq_store.base.io.threads import start_thread
from rmq_store.broker.admin_broker import AdminBroker
from rmq_store.broker.admin_topics import AdminTopics
from rmq_store.broker.calling import Calls
from rmq_store.broker.clients import Clients
from rmq_store.broker.codes import Code
from rmq_store.broker.core import Core, Processors
from rmq_store.broker.following import Following, check_role, own_id
from rmq_store.broker.heartbeats import Heartbeats
from rmq_store.broker.holding import HeldPulls
from rmq_store.broker.kept import Kept
from rmq_store.broker.known import Known
from rmq_store.broker.locks import Locks
from rmq_store.broker.offsets import Offsets
from rmq_store.broker.options import OBEYED, BrokerOptions, split
from rmq_store.broker.pulling import Pulling
from rmq_store.broker.queries import Queries
from rmq_store.broker.recalling import Recalling
from rmq_store.broker.registration import WILDCARDS, Registration, advertised, outgoing_tls, own_entry
from rmq_store.broker.replies import Replies
from rmq_store.broker.sending import Sending
from rmq_store.broker.sending_back import SendingBack
from rmq_store.broker.topics import Groups, Topics
from rmq_store.broker.transactions import Transactions
from rmq_store.broker.workers import Workers
from rmq_store.config import values
from rmq_store.config.sources import read_config
from rmq_store.errors import ArgumentIllegal, ConfigError
from rmq_store.namesrv.routes import Routes, Steps
from rmq_store.network.front import Answer, NativeFront
from rmq_store.remoting.client import advertise_text, listen_address, listening, servers
from rmq_store.remoting.frame import RESPONSE, Frame
from rmq_store.store import MessageStore

if TYPE_CHECKING:
    from rmq_store.broker.exposing import Exposing
    from rmq_store.broker.figures import Figures

__all__ = ["Broker"]

EXPIRE_S = 10.0
PAUSE_S = 0.2
SETTLE_S, SETTLE_SHARE = 1.0, 0.05
PULLS = (11, 361)
log = logging.getLogger("rmq_store.broker")


class Broker:
    """A RocketMQ broker, and a name server if one is asked for, over a store. `Broker.open` makes one.

    Lifetime: until close() or the end of its `with` block. Thread-safety: every method. RocketMQ's clients reach it at
    `namesrv_address`; `store` is an ordinary MessageStore, whose puts and gets meet those of the clients.
    """

    store: MessageStore
    address: str                        # HOST:PORT of the broker
    namesrv_address: str | None         # HOST:PORT of the name server in this process
    metrics_address: str | None = None
    fast_address: str | None = None     # two ports lower, where slaves ask for topics; None where that port is taken
    _core: Core
    _processors: Processors
    _front: NativeFront
    _sending: Sending
    _calls: Calls
    _keeper: threading.Thread
    _routes: Routes | None = None
    _registration: Registration | None = None
    _exposing: "Exposing | None" = None
    _known: Known | None = None         # set while it opens
    _closed = False
    _settle_at = 0.0
    _closing: threading.Lock
    _dirty: threading.Event             # a topic or a group changed
    _ended: threading.Event

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        raise ArgumentIllegal("Broker is not made by a call: Broker.open(path, ...) opens a store and serves it")

    @classmethod
    def open(cls, path: str | bytes | os.PathLike[Any], *, listen: str | None = None,
             namesrv_listen: str | None = "127.0.0.1:0", namesrv: str | None = None, advertise: str = "",
             metrics_listen: str | None = None, config: str | os.PathLike[str] | None = None,
             **options: Any) -> "Broker":
        """Opens or makes the store at `path`, and serves it. Returns when clients can connect.

        listen: HOST:PORT of the broker; port 0 chooses a free one. None: loopback, at the port that listenPort in `config` or
        `options` names, else at a free one. namesrv_listen: HOST:PORT of the name server that runs in
        this process; None for none. namesrv: "HOST:PORT;HOST:PORT", name servers of others, with which the broker registers.
        advertise: HOST or HOST:PORT that routes give to clients; default: `listen`, or the address on which a client reached
        the name server if `listen` is a wildcard. metrics_listen: HOST:PORT of a status page at /, and of Prometheus metrics at
        /metrics, which need the extra `metrics`. config: a broker.conf or a TOML file. options: those of MessageStore.open
        (docs/options.md) and of the broker (docs/broker.md), by their names here or in RocketMQ. Durability: flush_mode
        decides when a send is answered. Raises what MessageStore.open raises, ConfigError, and OSError for an address that
        cannot be listened on.
        """
        entries = read_config(config).entries if config is not None else {}
        own, found = split(options)
        others: dict[str, Any] = found
        given = split(entries)[0] | own
        port = _listen_port({**entries, **others})
        where = listen_address(listen, "listen") if listen is not None else ("127.0.0.1", port)
        if tells := advertise or str(others.get("brokerIP1", entries.get("brokerIP1", ""))):
            given["advertise"] = advertise_text(tells, "advertise" if advertise else "option brokerIP1")
        broker_options = BrokerOptions(given)
        shows = listen_address(metrics_listen, "metrics_listen", "127.0.0.1:9104") if metrics_listen is not None else None
        asked = servers(broker_options["namesrvAddr"], "option namesrvAddr") if namesrv is None else servers(namesrv, "namesrv")
        self = cls.__new__(cls)
        self._closing = threading.Lock()
        self._dirty, self._ended = threading.Event(), threading.Event()
        self._core = core = Core()
        core.options, core.started_ms = broker_options, int(time.time() * 1000)
        self._processors = Processors(core)
        with listening("listen", where):
            self._front = core.front = NativeFront(where, self._processors.answer, self._gone)
        try:
            self._listen(namesrv_listen)
            self._secure(path)
            core.address = self._address_in_records()
            for name in ("brokerIP1", "listenPort", "listen_port"):     # they say where the broker is, and so does store_host
                others.pop(name, None)
            if "store_host" not in others:
                others["store_host"] = core.address
            if config is not None:
                others["config"] = config
            check = partial(check_role, broker_id=broker_options["brokerId"], asks=bool(asked))
            self.store = core.store = MessageStore.open(path, **others, _check=check, _obeyed=OBEYED)
            core.broker_id = own_id(core.store.options.role, broker_options["brokerId"])
            self._make_parts(asked)
            if shows is not None:
                from rmq_store.broker.exposing import Exposing  # an HTTP server, which few ask for

                with listening("metrics_listen", shows):
                    self._exposing = Exposing(core, shows)
                self.metrics_address = self._exposing.address
            self._front.serve()
            self._keeper = start_thread(self._keep, "rmq-broker-keeper")
        except BaseException:
            self._close_parts()
            raise
        return self

    @property
    def acl_enabled(self) -> bool:
        """bool: whether requests need a signature (aclEnable)."""
        return self._core.access is not None

    def reconfigure(self, **options: Any) -> None:
        """Changes live options of the broker (docs/broker.md) and of its store (docs/options.md), by their names here or in
        RocketMQ: all of them, or none where one is wrong. RocketMQ: updateBrokerConfig. Raises ConfigError."""
        self._core.reconfigure(options)

    def figures(self) -> "Figures":
        """Each call of the result's `look()` returns what the broker did since the call before it: a Moment with rates a
        second, connections, held pulls, how far groups are behind, and the p99 of flushes. One thread looks."""
        from rmq_store.broker.figures import Figures  # for --watch, and programs that ask

        return Figures(self._core)

    def _listen(self, namesrv_listen: str | None) -> None:
        self.address, self.namesrv_address = self._front.address, None
        told = advertised(self.address, "", self._core.options["advertise"])
        if _is_loopback(self.address) and not _is_loopback(told):
            log.warning("routes name %s, and the broker listens on %s alone, which other machines do not reach: give --listen "
                        "an address that they do, unless something passes %s on to it", told, self.address, told)
        self._listen_fast()
        if namesrv_listen is not None:
            self._routes = Routes(own_entry(self._core, self.address))
            names = listen_address(namesrv_listen, "namesrv_listen", "127.0.0.1:9876")
            with listening("namesrv_listen", names):
                self.namesrv_address = self._front.listen(names, self._routes_answer)

    def _secure(self, path: str | bytes | os.PathLike[Any]) -> None:
        """Accounts and TLS, where they are asked for."""
        core, options = self._core, self._core.options
        if options["aclEnable"]:
            from rmq_store.broker.access import Access  # few have accounts

            default = os.path.join(os.fsdecode(path), "config", "plain_acl.yml")
            core.access = Access(options["aclFile"] or default, options["brokerClusterName"])
        elif options["aclFile"]:
            log.warning("option aclFile names accounts, and aclEnable is false: requests need no signature; set aclEnable=true")
        self._front.secure(options.table())
        core.tls = outgoing_tls(options)

    def _listen_fast(self) -> None:
        """RocketMQ's second port, which answers all but pulls. A Java slave fetches the topics there."""
        host, port = listen_address(self.address, "listen")
        try:
            self.fast_address = self._front.listen((host, port - 2), self._fast_answer) if port > 2 else None
        except OSError as error:
            log.info("port %d is not served, where Java slaves ask for topics: %s", port - 2, error)

    def _fast_answer(self, connection: Any, frame: Frame) -> Answer:
        if frame.code in PULLS:
            return self._core.dressed(frame.answer(Code.NOT_SUPPORTED, f" request type {frame.code} not supported"))
        return self._processors.answer(connection, frame)

    def _routes_answer(self, connection: Any, frame: Frame) -> Answer:
        assert self._routes is not None
        if frame.flag & RESPONSE:           # of a client that nobody asked
            return None
        answer = self._routes.answer(connection, frame)
        return self._core.dressed(answer) if isinstance(answer, Frame) else self._dressed(answer)

    def _dressed(self, steps: Steps) -> Steps:
        return self._core.dressed((yield from steps))

    def _address_in_records(self) -> str:
        """The host of message ids, which a client asks for the message: one that others reach."""
        found = advertised(self.address, "", self._core.options["advertise"])
        host, _, port = found.rpartition(":")
        try:
            values.ip_bytes(host.strip("[]"))
        except ValueError:
            host = "0.0.0.0"
        return f"{_own_ip()}:{port}" if host.strip("[]") in WILDCARDS else found

    def _make_parts(self, asked: list[tuple[str, int]]) -> None:
        core = self._core
        core.kept = Kept(core.store, core.options, core.reconfigure)          # first: what follows looks at options
        changed: Callable[[str], None] = self._changed
        core.topics = Topics(core.store, core.options, changed)
        core.groups = Groups(core.store, core.options, changed)
        heartbeats = Heartbeats(core)
        self._heartbeats = heartbeats
        core.clients, core.workers = Clients(heartbeats.notify, self._front.heard), Workers()
        core.held = HeldPulls(core.store)
        sync = core.store.options.flush_mode == "sync"
        transactions, self._calls = Transactions(core), Calls(core)
        core.answered = self._calls.answered
        self._sending = sending = Sending(core, transactions.prepare)
        offsets = Offsets(core)
        add = self._processors.add
        add(sending.processors())
        add(sending.batch_processors(), slow=sync)
        add(Pulling(core).processors())
        add(heartbeats.processors())
        add(heartbeats.slow_processors(), slow=True)
        add(Locks(core).processors())
        add(Replies(core, sending).processors())
        add(offsets.processors())
        add(offsets.slow_processors(), slow=True)
        for part in (Queries(core), SendingBack(core), transactions, AdminTopics(core), AdminBroker(core), Recalling(core),
                     self._calls):
            add(part.processors(), slow=True)
        if not core.is_slave:
            transactions.begin()
        self._known = Known(core, self._front)
        core.look = self._known.look
        following = Following(core, asks=bool(asked)) if core.is_slave else None
        if core.is_slave:                   # topics that come from the master
            core.store.topic_table.listeners.append(lambda: changed(""))
        if asked:
            self._registration = Registration(core, asked, following.learn if following is not None else None)

    def _changed(self, name: str) -> None:
        """A topic or a group came, changed or went."""
        if self._registration is not None:
            self._registration.changed()
        self._dirty.set()

    def _gone(self, connection: Any) -> None:
        if self._closed:                # all connections end, and nobody hears of it
            return
        if self._routes is not None:
            self._routes.gone(connection)
        if hasattr(self._core, "held"):      # else it opens, and nobody is served yet
            self._core.workers.drop(connection.id)
            self._core.held.drop(connection.id)
            self._core.clients.gone(connection)
            self._calls.gone(connection.id)
            self._core.look()

    def _keep(self) -> None:
        """Writes topics and groups soon after they change, and ends silent connections."""
        core = self._core
        while not self._ended.is_set():
            self._dirty.wait(EXPIRE_S)
            self._dirty.clear()
            if self._ended.is_set():
                return
            try:
                self._write_tables()
                core.clients.expire(time.monotonic() - core.options["channelExpiredTimeout"] / 1000)
                if self._known is not None:
                    self._known.look()
            except Exception as error:      # of whatever kind: the next round tries again
                log.error("keeping the tables of the broker failed: %s", error)
            self._ended.wait(PAUSE_S)       # one write for many topics that are made at once

    def _write_tables(self) -> None:
        """What changed is durable at once; the files that RocketMQ reads follow, in a SETTLE_SHARE of the time at most."""
        for table in (self.store.topic_table, self.store.group_table):
            table.flush()
            if table.unsettled and (begun := time.monotonic()) >= self._settle_at:
                table.settle()
                ended = time.monotonic()
                self._settle_at = ended + max((ended - begun) / SETTLE_SHARE, SETTLE_S)
            if table.unsettled:
                self._dirty.set()       # looks again

    def close(self) -> None:
        """Takes no more requests, answers what is under way, registers off, and closes the store. Idempotent. Raises what
        MessageStore.close raises."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._ended.set()
            self._dirty.set()
            self._keeper.join()
            self._close_parts()

    def _close_parts(self) -> None:
        try:
            self._stop_serving()
        finally:
            if hasattr(self, "store"):
                self.store.close()

    def _stop_serving(self) -> None:
        core = self._core
        if self._registration is not None:
            self._registration.stop()
        if self._exposing is not None:
            self._exposing.stop()
        if hasattr(core, "held"):
            core.held.stop()
        if hasattr(self, "_calls"):
            self._calls.stop()
        if hasattr(core, "workers"):
            self._heartbeats.stop()
            core.workers.stop()
        if hasattr(self, "_sending"):
            self._sending.drain(core.store.options.close_timeout_ms / 1000)
        self._front.stop()
        if self._known is not None:
            self._known.stop()

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Broker {self.store.path!r} at {self.address}{', closed' if self._closed else ''}>"


def _listen_port(given: Mapping[str, object]) -> int:
    found = given.get("listen_port", given.get("listenPort", 0))
    try:
        if 0 <= (port := values.to_int(found)) <= 65535:
            return port
    except ValueError:
        pass
    raise ConfigError(f"option listenPort is {found!r}: expected a number from 0 to 65535")


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    return host in ("localhost", "::1") or host.startswith("127.")


def _own_ip() -> str:
    """The address from which this machine would reach others. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))
            return str(sock.getsockname()[0])
        except OSError:
            return "127.0.0.1"
