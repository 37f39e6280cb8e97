"""rmq_store: an Apache RocketMQ message store in a Python process, for Linux."""
from rmq_store.store import MessageStore

__all__ = ["MessageStore", "__version__"]
__version__ = "0.1.0"
