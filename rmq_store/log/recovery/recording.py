"""The record of what a store's writer has (config/recorded.py), at the open: who cannot complete the store is refused, and what
is new is written before the first put. The opening thread.
"""
import os

from rmq_store.base.io.files import ControlFiles
from rmq_store.config.load import Options
from rmq_store.config.recorded import LIGHT, NAME, Recorded, read_recorded, recorded_path, recorded_text
from rmq_store.errors import StoreStateError
from rmq_store.events import Event, emit

__all__ = ["look_at_recorded", "record"]


def look_at_recorded(root: str, options: Options, dirty: bool) -> Recorded:
    """What the last writer recorded. dirty: the store was not closed in order. Raises StoreRefusesToLoad where an open for
    writing cannot complete the store, and StoreStateError where it would leave light queues without entries."""
    found = read_recorded(root)
    if options.readonly:
        if found.unusable:
            emit(Event.RECORDED_UNKNOWN, path=recorded_path(root), what=found.unusable)
        return found
    found.refuse_unknown(recorded_path(root))
    if dirty and _turned_off(found, options):
        name = next(name for name in LIGHT if not options[name])
        raise StoreStateError(
            f"{options.origin(name)} turns {name} off, and the store at {root} was not closed in order: recovery would leave "
            "the light queues without entries of messages that are in the log; open the store once without this option, close "
            "it, and turn the light queues off then")
    return found


def record(files: ControlFiles, root: str, options: Options, before: Recorded, end: int, keeps: bool) -> None:
    """Durable when it returns. end: of the log. keeps: of a repair, whose options are no choice of the writer: what is recorded
    stays. Raises OSError."""
    if keeps and before.text:
        return
    text = recorded_text(root, options)
    if text != before.text:
        files.make_dirs(os.path.join(root, "config"))
        files.write_new(os.path.join(root, "config"), NAME, text.encode())
    if _turned_off(before, options):
        name = next(name for name in LIGHT if not options[name])
        emit(Event.LIGHT_QUEUES_OFF, path=root, offset=end, source=options.origin(name))


def _turned_off(before: Recorded, options: Options) -> bool:
    had = all(before.others.get(name) for name in LIGHT)
    return had and not all(options[name] for name in LIGHT)
