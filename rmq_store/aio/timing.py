"""Timer messages of an AsyncMessageStore: the calls of MessageStore, awaited."""
from typing import TYPE_CHECKING, Unpack

from rmq_store.access.waiting.own_thread import in_own_thread
from rmq_store.aio.transaction import AsyncTransacting
from rmq_store.codec.timer import BROKER_NAME, RECALL_BODY, RECALL_TAG, recall_message
from rmq_store.services.timer.listing import PendingTimer

if TYPE_CHECKING:
    from rmq_store.access.writer._put import Body, PutResult
    from rmq_store.aio.keywords import PutKeywords

__all__ = ["AsyncTimers"]


class AsyncTimers(AsyncTransacting):
    """For tasks of one event loop."""

    if TYPE_CHECKING:
        async def put(self, topic: str, body: "Body", **keywords: Unpack[PutKeywords]) -> "PutResult": ...

    async def timers(self, *, topic: str | None = None) -> list[PendingTimer]:
        """As MessageStore.timers, in a list."""
        return await in_own_thread(lambda: list(self.store.timers(topic=topic)))

    async def recall(self, handle: str) -> "PutResult":
        """As MessageStore.recall: returns when the message that takes the other one back is as durable as a put."""
        topic, properties = recall_message(handle)
        result = await self.store._put_copy(topic, RECALL_BODY, tags=RECALL_TAG, properties=properties)
        self.store._recalled_in_time(handle)
        return result

    async def recall_handle(self, offset: int, broker_name: str = BROKER_NAME) -> str:
        """As MessageStore.recall_handle."""
        return self.store.recall_handle(offset, broker_name)
