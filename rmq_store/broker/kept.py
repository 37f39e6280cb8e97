"""Options that clients have changed by updateBrokerConfig (code 25), kept over restarts in config/brokerChanges.json, where
RocketMQ rewrites its broker.conf.

    {"changed": {option: {"name": as it was sent, "value": text, "before": text of the value that the broker began with}}}

A change holds as long as the broker begins with the value that it replaced. Who starts it with another one, in broker.conf or
on the command line, has decided anew, and the change is over. Thread-safety: any.
"""
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from rmq_store.broker.options import BrokerOptions, split
from rmq_store.config.options import BY_NAME, BY_UPSTREAM
from rmq_store.errors import ConfigError
from rmq_store.events import printable
from rmq_store.services.consumer.config_file import BROKER_CHANGES, ConfigFile, Rows, taken_changes
from rmq_store.store import MessageStore

__all__ = ["Kept"]

log = logging.getLogger("rmq_store.broker")


class Kept:
    """Made before the broker serves: its options and those of the store are those that it begins with. reconfigure: changes
    both."""

    def __init__(self, store: MessageStore, options: BrokerOptions,
                 reconfigure: Callable[[Mapping[str, object]], None]) -> None:
        """Takes the changes up that hold. Raises ConfigFileCorrupted, OSError."""
        self._store, self._options, self._reconfigure = store, options, reconfigure
        self._lock = threading.Lock()
        self._file = ConfigFile(store._files, store.path, BROKER_CHANGES)
        self._began = {name: str(value) for table in (options.table(), dict(store.options)) for name, value in
                       table.items()}
        found: Rows = self._file.load(taken_changes) or {}
        self._written = bool(found)         # whether the file has changes
        self._rows = {name: row for name, row in found.items() if self._repeat(name, row)}
        if self._rows:
            log.warning("options that updateBrokerConfig has changed hold again: %s; %s keeps them, and a start with another "
                        "value than the one that was changed ends that", printable(", ".join(
                            f"{row['name']}={row['value']}" for row in self._rows.values())), self._file.path)
        if self._rows != found:
            self._save()

    def _repeat(self, name: str, row: dict[str, str]) -> bool:
        """Whether a change holds."""
        try:
            if self._began.get(name) == row["before"]:
                self._reconfigure({row["name"]: row["value"]})
                return True
            why = f"it begins with {self._began.get(name)}, and not with {row['before']}"
        except ConfigError as error:
            why = str(error)
        log.warning("the broker forgets that updateBrokerConfig has set %s=%s: %s", *map(printable, (row["name"], row["value"],
                                                                                                    why)))
        return False

    def change(self, given: Mapping[str, object]) -> None:
        """Changes live options, all of them or none; durable when it returns. Raises ConfigError; OSError where they have
        changed, and a restart will not know."""
        with self._lock:
            self._reconfigure(given)
            for key, value in given.items():
                found = self._now(key)
                if found is None:
                    continue
                name, now = found
                if str(now) == self._began[name]:
                    self._rows.pop(name, None)
                else:
                    self._rows[name] = {"name": key, "value": str(value), "before": self._began[name]}
            if self._rows or self._written:     # also what a save before this one did not get written
                self._save()

    def _now(self, key: str) -> tuple[str, Any] | None:
        """The option's name and value; None of a key that has no effect."""
        own, _ = split({key: None})
        if own:
            name = next(iter(own))
            return name, self._options[name]
        option = BY_NAME.get(key) or BY_UPSTREAM.get(key)
        return None if option is None else (option.name, self._store.options[option.name])

    def _save(self) -> None:
        self._file.save({"changed": self._rows})        # nothing happens where the file says so already
        self._written = bool(self._rows)
