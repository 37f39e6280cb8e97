"""A name server of its own: brokers register with it, clients ask it for routes (RocketMQ: NamesrvController).

The network thread of a broker carries its frames, too. The one in a broker's process: broker/serving.py.
"""
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any

from rmq_store.config.broker import TLS_SERVER, snake_name, text_of
from rmq_store.errors import ArgumentIllegal, ConfigError
from rmq_store.namesrv.routes import Routes
from rmq_store.network.front import Answer, NativeFront
from rmq_store.remoting.client import listen_address, listening
from rmq_store.remoting.frame import RESPONSE, Frame

__all__ = ["NameServer"]


class NameServer:
    """A RocketMQ name server in this process: `with rmq_store.NameServer.open() as names`.

    Lifetime: until close() or the end of its `with` block. Thread-safety: every method. Brokers and clients reach it at
    `address`. Its table is in memory, as RocketMQ's is: brokers register again every 30 s.
    """

    address: str                # HOST:PORT
    _front: NativeFront

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        raise ArgumentIllegal("NameServer is not made by a call: NameServer.open() serves one")

    @classmethod
    def open(cls, listen: str = "127.0.0.1:0", **options: Any) -> "NameServer":
        """Serves. Returns when brokers and clients can connect.

        listen: HOST:PORT; port 0 chooses a free one. options: tls.server.mode and the others that begin with tls.server.
        (docs/broker.md), or tls_server_mode and so on. Raises ConfigError, and OSError for an address that cannot be listened
        on.
        """
        table = _checked(options)
        where = listen_address(listen, "listen", "127.0.0.1:9876")
        self, routes = cls.__new__(cls), Routes()
        with listening("listen", where):
            self._front = NativeFront(where, partial(_answer, routes), routes.gone, of_one=1)
        try:
            self.address = self._front.address
            self._front.secure(table)
            self._front.serve()
        except BaseException:
            self._front.stop()
            raise
        return self

    def close(self) -> None:
        """Closes every connection. Idempotent."""
        self._front.stop()

    def __enter__(self) -> "NameServer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<NameServer at {self.address}>"


def _checked(given: Mapping[str, object]) -> dict[str, str]:
    """Raises ConfigError."""
    known = {snake_name(name): name for name in TLS_SERVER} | {name: name for name in TLS_SERVER}
    for name in given:
        if name not in known:
            raise ConfigError(f"option {name} is none of a name server: give tls.server.mode and others of tls.server., see "
                              "docs/broker.md")
    return TLS_SERVER | {known[name]: text_of(known[name], value) for name, value in given.items()}


def _answer(routes: Routes, connection: object, frame: Frame) -> Answer:
    return None if frame.flag & RESPONSE else routes.answer(connection, frame)
