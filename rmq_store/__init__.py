"""rmq_store: an Apache RocketMQ message store in a Python process, for Linux."""
from rmq_store.advice import advise
from rmq_store.aio import AsyncMessageStore
from rmq_store.diagnosis import doctor
from rmq_store.integrity.findings import Finding
from rmq_store.integrity.scrubbing import ScrubResult, scrub
from rmq_store.integrity.verification import verify
from rmq_store.store import MessageStore
from rmq_store.version import VERSION as __version__

__all__ = ["AsyncMessageStore", "Finding", "MessageStore", "ScrubResult", "__version__", "advise", "doctor", "scrub", "verify"]
