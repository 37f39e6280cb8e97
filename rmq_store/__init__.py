"""rmq_store: an Apache RocketMQ message store in a Python process, for Linux."""
from rmq_store.advice import advise
from rmq_store.aio import AsyncMessageStore
from rmq_store.diagnosis import doctor
from rmq_store.store import MessageStore
from rmq_store.version import VERSION as __version__

__all__ = ["AsyncMessageStore", "MessageStore", "__version__", "advise", "doctor"]
