"""What carries requests to the processors of a broker or a name server (RocketMQ: NettyRemotingServer).

A front listens, reads frames, calls on_request(connection, frame) in a thread of its own, sends the answer that comes back, and
calls on_close(connection) once for each connection that ended. Connections take turns. What takes long comes back as a
generator: between its steps other connections are served, and the next request of this one waits for its end. With a store it
answers ordinary sends and pulls itself, by what `tell` tells of topics and subscriptions; every other request takes this way.
"""
import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rmq_store.base.io.threads import start_thread
from rmq_store.network._front import Front as NetworkThread
from rmq_store.remoting.client import address_text
from rmq_store.remoting.frame import Frame

if TYPE_CHECKING:
    from rmq_store.network.secure import Tls
    from rmq_store.store import MessageStore

__all__ = ["SHARDS", "Answer", "NativeFront", "Shard"]

CONNECTIONS_MAX = 10_000
SHARDS = 256
Shard = tuple[Iterable[tuple[str, int, int, int]], Iterable[tuple[str, str, int, Iterable[int]]]]     # topics, subscriptions
Answer = Frame | None | Generator[None, None, Frame | None]
log = logging.getLogger("rmq_store.network")


class NativeFront:
    """One native thread for all listeners of a server, and one Python thread for what the native one passes on. `address` is
    HOST:PORT of the first."""

    def __init__(self, listen: tuple[str, int], on_request: Callable[[Any, Frame], Answer],
                 on_close: Callable[[Any], None], *, of_one: int | None = None) -> None:
        """Listens at once; connections wait until `serve`. of_one: see network._front.Front. Raises OSError."""
        self._network = NetworkThread(*listen, on_request, on_close, connections_max=CONNECTIONS_MAX, of_one=of_one)
        self.address = address_text(self._network.address)
        self._thread: Any = None
        self._tls: Tls | None = None

    def listen(self, listen: tuple[str, int], on_request: Callable[[Any, Frame], Answer]) -> str:
        """One address more. Before `serve`. Returns it. Raises OSError."""
        return address_text(self._network.listen(*listen, on_request))

    def use(self, store: "MessageStore", **facts: object) -> None:
        """Before `serve`: ordinary sends and pulls on the first address are answered without Python."""
        self._network.use(store, **facts)

    def tell(self, shards: Iterable[tuple[int, Shard]]) -> None:
        """What the network thread may take as known from the next request on, of some shards of the names."""
        self._network.change(shards)

    def shard(self, name: str) -> int:
        """In which of SHARDS a topic or a group stands."""
        return self._network.shard(name)

    def secure(self, options: Mapping[str, Any]) -> None:
        """Before `serve`: TLS on all listeners, as the options tls.server.* say. Raises ConfigError."""
        if options["tls.server.mode"] != "disabled":
            from rmq_store.network.secure import Tls  # loads ssl

            self._tls = Tls(options, self._network.adopt)
            self._network.tls(self._tls.take, only=options["tls.server.mode"] == "enforcing")
        elif options["tls.server.certPath"]:
            log.warning("option tls.server.certPath names a certificate, and tls.server.mode is disabled: connections are "
                        "plain; set tls.server.mode=enforcing")

    def counts(self) -> dict[str, int]:
        """What the network thread has done."""
        return self._network.counts()

    def requests(self) -> dict[int, int]:
        """Requests that the network thread has answered, by code."""
        return self._network.requests()

    def held(self) -> int:
        """Pulls that the network thread holds."""
        return self._network.held()

    def generation(self) -> int:
        """How often `tell` told something."""
        return self._network.generation

    def remember(self, connection: int, body: bytes, version: int, generation: int) -> None:
        """This heartbeat is registered; `generation` was read before it was. The same again is answered without Python."""
        self._network.remember(connection, body, version, generation)

    def forget(self, connection: int) -> None:
        """The connection is not registered any more as its heartbeat said."""
        self._network.forget(connection)

    def heard(self, connection: int) -> float:
        """When (time.monotonic) a heartbeat of the connection last came, whether or not somebody has looked at it, or the
        connection took answers while its heartbeats had to wait for that; 0.0: never."""
        return self._network.heard(connection)

    def accounts(self, generation: int, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Who signs requests. This and the next three: see network._front.Front."""
        self._network.accounts(generation, rows)

    def fresh(self, until_ns: int) -> None:
        self._network.fresh(until_ns)

    def grant(self, generation: int, key: str, topic: str, group: str | None) -> None:
        self._network.grant(generation, key, topic, group)

    def trust(self, generation: int, connection: int) -> None:
        self._network.trust(generation, connection)

    def serve(self) -> None:
        """Raises OSError where no thread can start."""
        self._network.start()
        self._thread = start_thread(self._network.serve, "rmq-front")

    def stop(self) -> None:
        """Closes every connection, and waits for the end. Idempotent. Any thread."""
        try:
            self._network.stop()
            if self._thread is not None:
                self._thread.join()
        finally:
            if self._tls is not None:
                self._tls.stop()
