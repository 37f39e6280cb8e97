"""rmq_store: an Apache RocketMQ message store in a Python process, for Linux.

A name is imported when a program first uses it. So importing the package alone costs nothing, and the command line can answer
Ctrl-C from its first line on.
"""
import importlib
import sys
from typing import TYPE_CHECKING

from rmq_store.modules import install as _install
from rmq_store.version import VERSION as __version__

if TYPE_CHECKING:
    from rmq_store.access.reader._message import Message
    from rmq_store.access.waiting.listeners import MessageArrived
    from rmq_store.access.writer.hooks import PutMessage
    from rmq_store.aio import AsyncMessageStore
    from rmq_store.broker.aio import AsyncBroker
    from rmq_store.broker.serving import Broker
    from rmq_store.filter._program import SqlFilter
    from rmq_store.namesrv.serving import NameServer
    from rmq_store.services.backup.backup import BackupInfo, check_backup, list_backups, restore
    from rmq_store.services.consumer.consumer import origin_topic
    from rmq_store.services.integrity.findings import Finding
    from rmq_store.services.integrity.scrubbing import ScrubResult, scrub
    from rmq_store.services.integrity.verification import verify
    from rmq_store.services.transaction.transaction import Transaction
    from rmq_store.store import MessageStore
    from rmq_store.upkeep.doctor.advice import advise
    from rmq_store.upkeep.doctor.diagnosis import doctor
    from rmq_store.upkeep.moving.backup import backup
    from rmq_store.upkeep.moving.lines import LineResult, export_lines, import_lines
    from rmq_store.upkeep.moving.messages import CopyResult, copy_messages
    from rmq_store.upkeep.promoting.promotion import Promotion, promote

__all__ = ["AsyncBroker", "AsyncMessageStore", "BackupInfo", "Broker", "CopyResult", "Finding", "LineResult", "Message",
           "MessageArrived", "MessageStore", "NameServer", "Promotion", "PutMessage", "ScrubResult", "SqlFilter", "Transaction",
           "__version__", "advise", "backup", "check_backup", "copy_messages", "doctor", "export_lines", "import_lines",
           "list_backups", "origin_topic", "promote", "restore", "scrub", "verify"]

_install()

# A free-threaded Python turns its GIL on when it imports an extension, unless it was told never to: then what Python threads
# share here has no guard.
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    import rmq_store.base.io._io as _extension  # noqa: F401

    if not getattr(sys, "_is_gil_enabled")():       # noqa: B009, mypy does not know it before 3.13
        raise ImportError("rmq_store needs the GIL, and this Python runs with it forced off: start it without PYTHON_GIL=0 and "
                          "-X gil=0 (importing rmq_store then turns the GIL on)", name="rmq_store")


_MODULES = {
    "access.reader._message": ["Message"], "access.waiting.listeners": ["MessageArrived"],
    "access.writer.hooks": ["PutMessage"], "services.transaction.transaction": ["Transaction"],
    "aio": ["AsyncMessageStore"], "store": ["MessageStore"],
    "broker.aio": ["AsyncBroker"], "broker.serving": ["Broker"],
    "filter._program": ["SqlFilter"], "namesrv.serving": ["NameServer"],
    "services.backup.backup": ["BackupInfo", "check_backup", "list_backups", "restore"],
    "services.consumer.consumer": ["origin_topic"], "services.integrity.findings": ["Finding"],
    "services.integrity.scrubbing": ["ScrubResult", "scrub"],
    "services.integrity.verification": ["verify"],
    "upkeep.doctor.advice": ["advise"], "upkeep.doctor.diagnosis": ["doctor"],
    "upkeep.moving.backup": ["backup"],
    "upkeep.moving.lines": ["LineResult", "export_lines", "import_lines"],
    "upkeep.moving.messages": ["CopyResult", "copy_messages"],
    "upkeep.promoting.promotion": ["Promotion", "promote"],
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


if not TYPE_CHECKING:
    def __getattr__(name):
        if name in _HOME:
            value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
            return value
        if not name.startswith("_"):
            try:
                return importlib.import_module(f"{__name__}.{name}")        # rmq_store.errors, after import rmq_store
            except ModuleNotFoundError as error:
                if error.name != f"{__name__}.{name}":
                    raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})
