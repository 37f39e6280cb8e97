"""What a new entry of config/topics.json or config/subscriptionGroup.json may say: names and values that a broker takes
(RocketMQ: TopicValidator, PermName, TopicConfig, SubscriptionGroupConfig).

What is in the files already is kept as it is. Control plane.
"""
import re
from collections.abc import Mapping

from rmq_store.errors import illegal

__all__ = ["check_fields", "check_key", "check_name"]

_NAMED = re.compile(r"[%|A-Za-z0-9_-]{1,255}").fullmatch
_INT_LEAST, _INT_MOST = -(1 << 31), (1 << 31) - 1
_BOUNDS = {"perm": (0, 7), "readQueueNums": (0, 65_535), "writeQueueNums": (0, 65_535), "retryQueueNums": (0, 65_535)}
_FILTERS = "SINGLE_TAG", "MULTI_TAG"


def check_key(what: str, name: object) -> None:
    """Raises ArgumentIllegal for what can be no key of the file."""
    if not isinstance(name, str) or not name:
        raise illegal(what, name, f"give the name of a {what} as a str")


def check_name(what: str, name: str) -> None:
    """Raises ArgumentIllegal for a name that a broker refuses. what: "topic" or "group"."""
    check_key(what, name)
    if not _NAMED(name):
        raise illegal(what, name, "give a name of up to 255 characters % | A-Z a-z 0-9 _ -")


def check_fields(fields: Mapping[str, object], defaults: Mapping[str, object], name_field: str, name: str) -> None:
    """Raises ArgumentIllegal for a value of another type than its default, or out of range."""
    for field, value in fields.items():
        default = defaults[field]
        if field == name_field:
            if value != name:
                raise illegal(field, value, f"give {name!r}, or leave it out")
        elif isinstance(default, bool):
            if not isinstance(value, bool):
                raise illegal(field, value, "give True or False")
        elif isinstance(default, int):
            low, high = _BOUNDS.get(field, (_INT_LEAST, _INT_MOST))
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise illegal(field, value, f"give a whole number, {low} to {high}")
        elif isinstance(default, str):
            if value not in _FILTERS:
                raise illegal(field, value, "give 'SINGLE_TAG' or 'MULTI_TAG'")
        elif not isinstance(value, Mapping) or not all(isinstance(one, str) for pair in value.items() for one in pair):
            raise illegal(field, value, "give a mapping of str to str")
