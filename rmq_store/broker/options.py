"""The broker's own options: RocketMQ's names, in its spelling or as snake_case, beside those of the store.

`split` takes them out of what a caller, a configuration file or `-o` gives; what is left belongs to the store. Source: the
fields of BrokerConfig (4.9.8, 5.3.3), with its defaults where DEFAULTS does not say otherwise.
"""
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from rmq_store.config import values
from rmq_store.config.broker import TLS_CLIENT, TLS_SERVER, snake_name, text_of
from rmq_store.errors import ConfigError

__all__ = ["LIVE", "OBEYED", "SECRET", "BrokerOptions", "split"]

# RocketMQ's name -> default. enablePropertyFilter is on here: SQL92 filters work at once.
DEFAULTS: dict[str, Any] = {
    "brokerName": "broker-a", "brokerClusterName": "DefaultCluster", "brokerId": 0, "brokerPermission": 6,
    "autoCreateTopicEnable": True, "autoCreateSubscriptionGroup": True, "defaultTopicQueueNums": 8,
    "clusterTopicEnable": True, "brokerTopicEnable": True, "traceTopicEnable": False,
    "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
    "enablePropertyFilter": True, "rejectTransactionMessage": False, "longPollingEnable": True, "shortPollingTimeMills": 1000,
    "notifyConsumerIdsChangedEnable": True, "regionId": "DefaultRegion", "traceOn": True, "namesrvAddr": "",
    "registerNameServerPeriod": 30_000, "recallMessageEnable": False, "allowRecallWhenBrokerNotWriteable": True,
    "channelExpiredTimeout": 120_000, "validateSystemTopicWhenUpdateTopic": True, "waitTimeMillsInSendQueue": 200,
    "slaveReadEnable": False, "advertise": "", "aclEnable": False, "aclFile": "", "authenticationEnabled": False,
    "authorizationEnabled": False,
    **TLS_SERVER, **TLS_CLIENT}
SECRET = frozenset(("tls.server.keyPassword", "tls.client.keyPassword"))     # told to nobody
LIVE = frozenset(DEFAULTS) - {
    "brokerName", "brokerClusterName", "brokerId", "namesrvAddr", "waitTimeMillsInSendQueue", "advertise", "aclEnable",
    "aclFile", "authenticationEnabled", "authorizationEnabled"} - {name for name in DEFAULTS if name.startswith("tls.")}
_RANGES = {"brokerPermission": (0, 7), "brokerId": (0, (1 << 31) - 1), "defaultTopicQueueNums": (1, 1024),
           "shortPollingTimeMills": (0, 3_600_000), "registerNameServerPeriod": (10_000, 60_000),
           "channelExpiredTimeout": (1000, 86_400_000), "waitTimeMillsInSendQueue": (1, 3_600_000)}


_BY_NAME = {name: name for name in DEFAULTS} | {snake_name(name): name for name in DEFAULTS}
OBEYED = frozenset(_BY_NAME)        # names that a broker.conf can give, and that this broker takes
_NAME = partial(re.fullmatch, r"[%|A-Za-z0-9_.-]{1,127}")


def split(given: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """(the broker's by RocketMQ's name, the others)."""
    own, others = {}, {}
    for key, value in given.items():
        if key in _BY_NAME:
            own[_BY_NAME[key]] = value
        else:
            others[key] = value
    return own, others


class BrokerOptions:
    """Values by RocketMQ's names: options["brokerName"]. Any thread; `change` swaps the whole table."""

    def __init__(self, given: Mapping[str, object]) -> None:
        """Raises ConfigError."""
        self._values = {**DEFAULTS, **{name: _checked(name, value) for name, value in given.items()}}
        self.changes = 0

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def table(self) -> dict[str, Any]:
        return dict(self._values)

    def check(self, given: Mapping[str, object]) -> None:
        """Raises ConfigError for what `change` does not take."""
        for name, value in given.items():
            if _checked(name, value) != self._values[name] and name not in LIVE:
                raise ConfigError(f"option {name} cannot change while the broker serves: start it again with the new value")

    def change(self, given: Mapping[str, object]) -> None:
        """Live options only. All of them change, or none. Raises ConfigError."""
        self.check(given)
        self._values = {**self._values, **{name: _checked(name, value) for name, value in given.items()}}
        self.changes += 1


def _checked(name: str, value: object) -> Any:
    default = DEFAULTS[name]
    try:
        if isinstance(default, bool):
            if values.to_bool(value) and name in ("authenticationEnabled", "authorizationEnabled"):
                raise ValueError("this broker knows the accounts of plain_acl.yml only: set aclEnable instead")
            return values.to_bool(value)
        if isinstance(default, int):
            low, high = _RANGES[name]
            number = values.to_int(value)
            if not low <= number <= high:
                raise ValueError(f"expected a number from {low} to {high}")
            return number
    except ValueError as error:
        raise ConfigError(f"option {name} is {value!r}: {error}") from None
    text = text_of(name, value)
    if name in ("brokerName", "brokerClusterName") and not _NAME(text):
        raise ConfigError(f"option {name} is {value!r}: give 1 to 127 characters % | A-Z a-z 0-9 _ . -")
    return text
