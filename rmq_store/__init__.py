"""rmq_store: an Apache RocketMQ message store in a Python process, for Linux."""
import sys

from rmq_store.advice import advise
from rmq_store.aio import AsyncMessageStore
from rmq_store.diagnosis import doctor
from rmq_store.integrity.findings import Finding
from rmq_store.integrity.scrubbing import ScrubResult, scrub
from rmq_store.integrity.verification import verify
from rmq_store.moving.backup import BackupInfo, backup, check_backup, list_backups, restore
from rmq_store.moving.lines import LineResult, export_lines, import_lines
from rmq_store.moving.messages import CopyResult, copy_messages
from rmq_store.store import MessageStore
from rmq_store.version import VERSION as __version__

__all__ = ["AsyncMessageStore", "BackupInfo", "CopyResult", "Finding", "LineResult", "MessageStore", "ScrubResult",
           "__version__", "advise", "backup", "check_backup", "copy_messages", "doctor", "export_lines", "import_lines",
           "list_backups", "restore", "scrub", "verify"]

# A free-threaded Python turns its GIL on when it imports the extensions above, unless it was told never to: then what Python
# threads share here has no guard.
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise ImportError("rmq_store needs the GIL, and this Python runs with it forced off: start it without PYTHON_GIL=0 and "
                      "-X gil=0 (importing rmq_store then turns the GIL on)", name="rmq_store")
