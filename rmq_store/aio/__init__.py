"""The asyncio interface: AsyncMessageStore, its consumers and subscriptions."""
from rmq_store.aio.store import AsyncMessageStore, Subscription

__all__ = ["AsyncMessageStore", "Subscription"]
