"""Mistakes that the model must find, with what it must say, and the seeds whose sequences show them soonest. Each is a promise
that one feature breaks. A patch in Python stands for the mistake itself."""
import base64
from collections.abc import Callable
from typing import Any

from rmq_store import MessageStore, store
from rmq_store.services.cleaning import removing
from rmq_store.services.consumer.consumer import Batch
from rmq_store.services.timer import service as timer
from rmq_store.services.transaction import service as transaction
from rmq_store.upkeep.promoting import promotion

Patch = Callable[[Any, str, Any], None]         # as monkeypatch.setattr
PLANTS: dict[str, tuple[Callable[[Patch], None], str, tuple[int, ...]]] = {}


def plant(says: str, *seeds: int) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def add(function: Callable[[Patch], None]) -> Callable[[Patch], None]:
        PLANTS[function.__name__] = function, says, seeds
        return function
    return add


@plant("is not there, and was acknowledged", 15, 36, 62)
def a_put_is_acknowledged_before_its_sync(patch: Patch) -> None:
    put = MessageStore.put
    patch(MessageStore, "put", lambda self, *given, **named: put(self, *given, **{**named, "wait": False}))


@plant("is not there, and was acknowledged", 1, 3)
def a_flush_flushes_nothing(patch: Patch) -> None:
    patch(MessageStore, "flush", lambda self: self.stats()["wrote"])


@plant("its topic was deleted", 8, 11)
def a_deletion_is_not_remembered(patch: Patch) -> None:
    patch(removing, "_save", lambda file, known: None)


@plant("failed each time, and is no dead letter|was never handled", 7, 10)
def a_retry_is_not_stored(patch: Patch) -> None:
    patch(Batch, "retry", lambda batch, message, delay_level=0: "%RETRY%G")


@plant(r"came \d times", 10, 57)
def a_commit_of_before_is_not_looked_for(patch: Patch) -> None:
    patch(transaction, "committed_among", lambda store, halves, end=None: {})


@plant("its message is there|did not come", 19, 21)
def a_rollback_commits(patch: Patch) -> None:
    end = transaction.Transactions.end
    patch(transaction.Transactions, "end", lambda self, store, half, state, wait: end(self, store, half, "committed", wait))


@plant("was taken back, and came", 1, 15)
def a_recall_names_another_message(patch: Patch) -> None:
    recall_handle = MessageStore.recall_handle

    def planted(self: MessageStore, offset: int, broker_name: str = "DEFAULT_BROKER") -> str:
        known = base64.urlsafe_b64decode(recall_handle(self, offset, broker_name)).decode()
        return base64.urlsafe_b64encode(f"{known[:-1]}x".encode()).decode()

    patch(MessageStore, "recall_handle", planted)


@plant(r"timer .* came \d times", 6, 11)
def copies_behind_the_mark_are_not_looked_for(patch: Patch) -> None:
    patch(timer, "load_mark", lambda root: (None, None))


@plant(r"timer .* came \d times", 64, 67)
def a_promotion_forgets_what_its_master_delivered(patch: Patch) -> None:
    patch(promotion, "promote_check", lambda *given: None)


@plant("the table lacks", 2, 14)
def cleaning_does_not_wait_for_compaction(patch: Patch) -> None:
    patch(store, "save_values", lambda store: None)
