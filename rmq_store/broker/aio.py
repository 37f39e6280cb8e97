"""AsyncBroker: a broker that an event loop opens and closes without being held up."""
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rmq_store.access.waiting.own_thread import in_own_thread
from rmq_store.aio.store import AsyncMessageStore
from rmq_store.broker.serving import Broker

if TYPE_CHECKING:
    from rmq_store.broker.figures import Figures

__all__ = ["AsyncBroker"]


class AsyncBroker:
    """A Broker in an asyncio program: `async with await AsyncBroker.open(path) as broker`. `store` is an AsyncMessageStore.

    The broker serves in threads of its own; the event loop is not involved in what clients do.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.store = AsyncMessageStore(broker.store)

    @classmethod
    async def open(cls, path: str | bytes | os.PathLike[Any], **options: Any) -> "AsyncBroker":
        """As Broker.open, with the same arguments and errors, in a thread of its own. If the task is cancelled, the broker
        closes as soon as it is open. With signals=True the store opens in this thread, which must be the main thread."""
        if options.get("signals"):
            return cls(Broker.open(path, **options))
        return cls(await in_own_thread(lambda: Broker.open(path, **options), lambda broker: broker.close()))

    @property
    def address(self) -> str:
        """str: HOST:PORT of the broker."""
        return self.broker.address

    @property
    def namesrv_address(self) -> str | None:
        """str: HOST:PORT of the name server in this process, None for none."""
        return self.broker.namesrv_address

    @property
    def metrics_address(self) -> str | None:
        """str: HOST:PORT of the status page and the metrics, None for none."""
        return self.broker.metrics_address

    @property
    def acl_enabled(self) -> bool:
        """bool: whether requests need a signature (aclEnable)."""
        return self.broker.acl_enabled

    def reconfigure(self, **options: Any) -> None:
        """As Broker.reconfigure."""
        self.broker.reconfigure(**options)

    def figures(self) -> "Figures":
        """As Broker.figures."""
        return self.broker.figures()

    async def close(self) -> None:
        """As Broker.close, in a thread of its own."""
        await in_own_thread(self.broker.close)

    async def __aenter__(self) -> "AsyncBroker":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()
