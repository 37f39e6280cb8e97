"""rmq_store: an Apache RocketMQ message store in a Python process, for Linux."""
<<<<<<< HEAD
from rmq_store.advice import advise
=======
from rmq_store.aio import AsyncMessageStore
>>>>>>> 7d16df4 (Await puts and messages, and let a future be a comparison)
from rmq_store.diagnosis import doctor
from rmq_store.store import MessageStore
from rmq_store.version import VERSION as __version__

<<<<<<< HEAD
__all__ = ["MessageStore", "__version__", "advise", "doctor"]
=======
__all__ = ["AsyncMessageStore", "MessageStore", "__version__", "doctor"]
>>>>>>> 7d16df4 (Await puts and messages, and let a future be a comparison)
