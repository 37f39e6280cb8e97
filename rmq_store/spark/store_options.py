"""Options of a store among those of a read or a write (`store.<name>`): checked beside the driver, before a task runs."""
import os
from collections.abc import Iterable, Mapping
from typing import Any

from rmq_store.config.broker import BROKER_ONLY
from rmq_store.config.load import Options, resolve
from rmq_store.config.options import BY_NAME, BY_UPSTREAM
from rmq_store.config.upstream import NO_EFFECT, NOT_SUPPORTED
from rmq_store.errors import ConfigError
from rmq_store.spark.stores import local_path

__all__ = ["chosen_options", "recovery_options", "store_options"]

# Spark keeps option names in small letters.
_NAMES = {name.lower(): name for name in (*BROKER_ONLY, *NO_EFFECT, *NOT_SUPPORTED, *BY_UPSTREAM, *BY_NAME, "profile",
                                          "config")}
_OF_RECOVERY = ("recover_check_crc", "record_crc_required", "index_recover_safe", "index_enabled", "profile", "config")
_PATHS = ("commitlog_path", "commitlog_paths_readonly", "consumequeue_path", "index_path")


def store_options(given: Iterable[tuple[str, str]], root: str, shards: bool) -> dict[str, str]:
    """What MessageStore.open takes, with the names as it spells them and whole paths. shards: for stores that each task makes.

    Raises ConfigError for what the open would refuse: a name that is unknown (with the nearest one) or twice, a value. And for
    what no write can do with.
    """
    found: dict[str, str] = {}
    for raw, value in given:
        name = _NAMES.get(raw.lower(), raw)
        option = BY_NAME.get(name) or BY_UPSTREAM.get(name)
        if option is not None and option.name in _PATHS:
            several = value.split(",") if option.kind == "paths" else [value]
            value = ",".join(os.path.abspath(local_path(part.strip(), f"store.{raw}")) if part.strip() else part
                             for part in several)
            if shards:
                raise ConfigError(f"option store.{raw} is {value!r}, and with shards every task makes a store: they cannot "
                                  "share a directory, leave it out")
        if name in found:
            raise ConfigError(f"option store.{name} is given twice")
        found[name] = value
    try:
        chosen = chosen_options(found, root)
    except ConfigError as error:
        raise ConfigError(f"options of the store (store.*): {error}") from None
    if chosen.readonly:
        raise ConfigError("option store.readonly is true: a write needs a store that it may write to")
    return found


def recovery_options(given: Iterable[tuple[str, str]], root: str) -> tuple[tuple[str, str], ...]:
    """Of a read: how the next open of a crashed store recovers it. Raises ConfigError, also for what has no effect there."""
    rows = list(given)
    found = store_options(rows, root, False) if rows else {}
    for name in found:
        option = BY_UPSTREAM.get(name)
        if (name if option is None else option.name) not in _OF_RECOVERY:
            raise ConfigError(f"option store.{name} has no effect on a read: leave it out. A read takes those that say how a "
                              f"crashed store recovers: {', '.join(_OF_RECOVERY)}")
    return tuple(found.items())


def chosen_options(given: Mapping[str, Any], root: str) -> Options:
    """The options that MessageStore.open would choose. Raises ConfigError."""
    rest = dict(given)
    return resolve(rest.pop("profile", None), rest, root, config=rest.pop("config", None), environment=os.environ)
