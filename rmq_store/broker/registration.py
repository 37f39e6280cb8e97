"""The broker at its name servers: the embedded one, which reads its topics, and real ones, with which it registers every 30 s
and when a topic changes (RocketMQ: BrokerOuterAPI, BrokerController.registerBrokerAll)."""
import json
import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rmq_store.base.io.threads import start_thread
from rmq_store.broker.codes import RETRY
from rmq_store.broker.core import Core
from rmq_store.broker.options import BrokerOptions
from rmq_store.broker.topics import Topic, topic_problem
from rmq_store.config.upstream_json import parse_json
from rmq_store.events import printable
from rmq_store.namesrv.routes import Broker as Entry
from rmq_store.remoting.client import Client, address_text
from rmq_store.remoting.frame import Frame

if TYPE_CHECKING:
    import ssl

__all__ = ["Registration", "advertised", "outgoing_tls", "own_entry"]

REGISTER, UNREGISTER, CLUSTER = 103, 104, 106
log = logging.getLogger("rmq_store.broker")
GATHER_S = 0.1              # a second change waits so long after the first
PIECE = 2000                # topics of one registration: with the longest names far below the 16 MiB of a frame
LEADERLESS_S = 1.0          # a slave that does not know its master yet asks again after, and each time after twice that
WILDCARDS = ("0.0.0.0", "::")


def advertised(listen: str, local: str, advertise: str) -> str:
    """The address at which a client reaches the broker. listen: where the broker listens. local: the address on which that
    client reached the name server of this process, "" for none. advertise: HOST or HOST:PORT that somebody gave."""
    host, _, port = listen.rpartition(":")
    if advertise:
        has_port = advertise.rpartition(":")[2].isdecimal() and (advertise.count(":") == 1 or "]:" in advertise)
        return advertise if has_port else f"{advertise}:{port}"
    if host.strip("[]") in WILDCARDS and local:
        return f"{local.rpartition(':')[0]}:{port}"
    return listen


def ha_address(core: Core) -> str:
    """Where slaves connect, as others reach it; "" for nowhere."""
    listens = core.store.replication().address
    if listens is None:
        return ""
    host, _, port = listens.rpartition(":")
    return f"{core.address.rpartition(':')[0]}:{port}" if host.strip("[]") in WILDCARDS else listens


def _row(core: Core, topic: Topic) -> dict[str, Any]:
    """A topic as a route has it."""
    return {"brokerName": core.options["brokerName"], "readQueueNums": topic.read, "writeQueueNums": topic.write,
            "perm": topic.perm, "topicSysFlag": topic.sys_flag}


class _Rows(Mapping[str, dict[str, Any]]):
    """The topics of the broker as routes have them, each made when it is asked for."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def __getitem__(self, name: str) -> dict[str, Any]:
        if (topic := self._core.topics.get(name)) is None:
            raise KeyError(name)
        return _row(self._core, topic)

    def __iter__(self) -> Iterator[str]:
        return iter(self._core.topics.snapshot())

    def __len__(self) -> int:
        return len(self._core.topics)


def own_entry(core: Core, listen: str) -> Callable[[Any], Entry]:
    """What the embedded name server says of this broker to the peer of a connection."""
    def promised(topic: str) -> dict[str, Any] | None:
        """The retry topic of a group that has not sent a heartbeat yet: a client that meets no route looks again after 30 s
        only, and some give up."""
        core.topics.enter(topic)            # of a put of this process
        if (found := core.topics.get(topic)) is not None:
            return _row(core, found)
        if not topic.startswith(RETRY) or topic_problem(topic) or not core.options["autoCreateSubscriptionGroup"]:
            return None
        return _row(core, Topic(topic, 1, 1, 6))

    def entry(connection: Any) -> Entry:
        address = advertised(listen, getattr(connection, "local", ""), core.options["advertise"])
        return Entry(core.options["brokerClusterName"], core.options["brokerName"], core.broker_id, address, ha_address(core),
                     None, None, _Rows(core), promised)

    return entry


def registered(cluster: bytes, name: str, broker_id: int) -> str:
    """The address of a broker in a name server's answer to 106; "" where it knows none."""
    found: Any
    try:
        found = parse_json(cluster.decode())
        for key in ("brokerAddrTable", name, "brokerAddrs", str(broker_id)):
            found = found[key]
    except (KeyError, TypeError, ValueError):
        return ""
    return found if isinstance(found, str) else ""


def outgoing_tls(options: BrokerOptions) -> "ssl.SSLContext | None":
    """For connections to name servers and to a master's broker; None: they are plain. Raises ConfigError."""
    if options["tls.enable"]:
        from rmq_store.remoting.tls import client_context  # loads ssl

        return client_context(options.table())
    if any(options[f"tls.client.{name}"] for name in ("authServer", "trustCertPath", "certPath")):
        log.warning("an option of tls.client. is set, and tls.enable is false: the broker connects to others without TLS; set "
                    "tls.enable=true")
    return None


class Registration:
    """Tells real name servers of this broker, in one thread, on a connection to each that stays open."""

    def __init__(self, core: Core, servers: list[tuple[str, int]], learn: Callable[[str, str], None] | None = None) -> None:
        """learn: called with the addresses of a slave's master, of its broker and of its HA service, after each
        registration."""
        self._learn = learn
        self._core, self._servers = core, servers
        self._clients: dict[tuple[str, int], Client] = {}
        self._changed = threading.Event()
        self._stopped = False
        self._ending = threading.Event()
        # changes of the table of topics that a name server has, and the connection by which it heard of all
        self._told: dict[tuple[str, int], tuple[int, int]] = {}
        self._failed: set[tuple[str, int]] = set()
        self._compared: set[tuple[str, int]] = set()
        self._heard: set[tuple[str, int]] = set()           # those that answered when they were last asked
        self.thread = start_thread(self._run, "rmq-broker-register")

    def changed(self) -> None:
        """A topic came, changed or went: the name servers hear of it at once, and of what comes within GATHER_S together."""
        self._changed.set()

    def stop(self) -> None:
        self._stopped = True
        self._ending.set()
        self._changed.set()
        for client in list(self._clients.values()):         # a server that is silent does not hold the end
            client.cut()
        self.thread.join()

    def _run(self) -> None:
        pause, due = LEADERLESS_S, 0.0
        while not self._stopped:
            period = self._core.options["registerNameServerPeriod"] / 1000
            leaderless = self._learn is not None and self._core.store.options.ha_master is None
            self._changed.clear()
            whole = time.monotonic() >= due
            for server in self._servers:
                self._compare(server)
            masters = [ext for server in self._servers if (ext := self._tell(server, whole)) is not None]
            if self._learn is not None and masters and not self._stopped:
                known = next((ext for ext in masters if ext.get("masterAddr")), masters[0])
                self._learn(known.get("masterAddr", ""), known.get("haServerAddr", ""))
                leaderless = leaderless and not known.get("masterAddr")
            if whole:
                due = time.monotonic() + (min(pause, period) if leaderless else period)
                pause = min(2 * pause, period) if leaderless else LEADERLESS_S
            self._changed.wait(max(due - time.monotonic(), 0))
            self._ending.wait(GATHER_S)
        for server in self._heard.copy():
            self._ask(server, UNREGISTER, lambda: (self._who(), b""))
        for client in self._clients.values():
            client.close()

    def _compare(self, server: tuple[str, int]) -> None:
        """Once, before a name server hears of this broker: it takes whoever comes, the last one of a name and an id."""
        if server in self._compared or (answer := self._ask(server, CLUSTER, lambda: ({}, b""))) is None:
            return
        self._compared.add(server)
        name, number, own = self._core.options["brokerName"], self._core.broker_id, self._core.address
        other = registered(answer.body, name, number)
        if other not in ("", own):
            log.warning("the name server %s:%d knows the broker %s with id %d at %.100s, and this one is at %s: if the other "
                        "still runs, clients get now one, now the other, and neither has all messages; end one of the two, or "
                        "give this one another %s", *server, name, number, printable(other), own,
                        "brokerId" if number else "brokerName")

    def _who(self) -> dict[str, str]:
        options = self._core.options
        return {"brokerName": options["brokerName"], "brokerAddr": self._core.address, "brokerId": str(self._core.broker_id),
                "clusterName": options["brokerClusterName"]}

    def _tell(self, server: tuple[str, int], whole: bool) -> dict[str, str] | None:
        """Registers with one server: with all topics, in pieces, or with those that changed since it heard of all. The fields
        of the last answer; None where there is none. A name server adds what it is told, and looks at no piece that has the
        dataVersion of the one before (RouteInfoManager.registerBroker; RocketMQ 5: splitRegistrationSize)."""
        topics = self._core.topics
        version = topics.version()              # first: what changes from here on gets a newer one
        seen, connection = self._told.pop(server, (-1, 0))
        changes, names = topics.changes_since(-1 if whole else seen)
        rows = list(topics.snapshot().values()) if names is None else [
            topic for name in names if (topic := topics.get(name)) is not None]
        answer = None
        # Without a topic, too: a slave learns of its master by the answer.
        least = 1 if names is None or self._learn is not None else 0
        for at in range(0, max(len(rows), least), PIECE):
            time_ms = version["timestamp"] - max(len(rows) - 1, 0) // PIECE + at // PIECE
            answer = self._ask(server, REGISTER, partial(self._register, rows[at:at + PIECE], version | {"timestamp": time_ms}))
            if answer is None:
                return None
        now = self._clients[server].connections if server in self._clients else 0
        if names is None or now == connection:
            self._told[server] = changes, now
            return None if answer is None else answer.ext
        return self._tell(server, True)         # it may have begun anew

    def _register(self, topics: list[Topic], version: dict[str, Any]) -> tuple[dict[str, str], bytes]:
        """Without the attributes of topics, which no route has: they are as long as clients like."""
        wrapper: dict[str, Any] = {"dataVersion": version, "topicConfigTable": {topic.name: {
            "order": topic.order, "perm": topic.perm, "readQueueNums": topic.read, "topicFilterType": "SINGLE_TAG",
            "topicName": topic.name, "topicSysFlag": topic.sys_flag, "writeQueueNums": topic.write} for topic in topics}}
        if self._core.modern:
            wrapper |= {"topicQueueMappingInfoMap": {}, "topicQueueMappingDetailMap": {}, "mappingDataVersion": {
                "counter": 0, "stateVersion": 0, "timestamp": self._core.started_ms}}
        body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}, separators=(",", ":")).encode()
        ext = self._who() | {"haServerAddr": ha_address(self._core), "compressed": "false",
                             "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)}
        return ext, body

    def _ask(self, server: tuple[str, int], code: int, make: Callable[[], tuple[dict[str, str], bytes]]) -> Frame | None:
        """A server that does not answer is asked again in the next round; the log says so once."""
        content = make()
        if self._stopped and code != UNREGISTER:
            return None
        try:
            if server not in self._clients:
                self._clients[server] = Client(address_text(server), version=self._core.version, tls=self._core.tls)
            answer = self._clients[server].ask(code, *content)
            self._failed.discard(server)
            self._heard.add(server)
            return answer
        except (OSError, ValueError) as error:
            self._heard.discard(server)
            if server in self._clients:
                self._clients[server].cut()
            if server not in self._failed and not self._stopped:
                self._failed.add(server)
                log.warning("the name server %s:%d does not take the registration: %s", *server, printable(str(error)))
            return None
