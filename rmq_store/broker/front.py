"""What carries requests to the processors: the interface of a front, and the front in Python (RocketMQ: NettyRemotingServer).

A front listens, reads frames, calls on_request(connection, frame) in a thread of its own, sends the answer that comes back, and
calls on_close(connection) once for each connection that ended. A native front may answer requests itself; every other request
takes this way.
"""
from collections.abc import Callable
from typing import Any, Protocol

from rmq_store.base.io.threads import start_thread
from rmq_store.remoting.frame import Frame
from rmq_store.remoting.loop import Loop, address_text

__all__ = ["Front", "LoopFront"]

CONNECTIONS_MAX = 10_000


class Front(Protocol):
    """`address` is host:port. `serve` begins to serve and returns; `stop` closes every connection and waits for the end."""

    address: str

    def serve(self) -> None: ...
    def stop(self) -> None: ...


class LoopFront:
    """One Python thread for all listeners of a broker: its own, and that of the embedded name server."""

    def __init__(self, listen: tuple[str, int], on_request: Callable[[Any, Frame], Frame | None],
                 on_close: Callable[[Any], None]) -> None:
        """Listens at once; connections wait until `serve`. Raises OSError."""
        self._loop = Loop(*listen, on_request, on_close, connections_max=CONNECTIONS_MAX)
        self.address = address_text(self._loop.address)
        self._thread: Any = None

    def listen(self, listen: tuple[str, int], on_request: Callable[[Any, Frame], Frame | None]) -> str:
        """One address more. Before `serve`. Returns it. Raises OSError."""
        return address_text(self._loop.listen(*listen, on_request))

    def serve(self) -> None:
        self._thread = start_thread(self._loop.serve, "rmq-broker-front")

    def stop(self) -> None:
        if self._thread is None:
            self._loop.close()
            return
        self._loop.stop()
        self._thread.join()
        self._thread = None
