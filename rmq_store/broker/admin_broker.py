"""Administration of the broker itself: codes 25, 26, 28 and 315 (RocketMQ: AdminBrokerProcessor)."""
import time

from rmq_store.broker.codes import Code
from rmq_store.broker.core import Core, Processor
from rmq_store.broker.options import SECRET
from rmq_store.broker.request import Refused, Request, body_of
from rmq_store.config.options import OPTIONS, Option
from rmq_store.config.properties import parse
from rmq_store.errors import ArgumentIllegal, ConfigError
from rmq_store.remoting.frame import Frame

__all__ = ["AdminBroker"]

VERSIONS = {409: "V4_9_8", 479: "V5_3_3"}
_ROLES = {"master": "ASYNC_MASTER", "sync_master": "SYNC_MASTER", "slave": "SLAVE"}
_POOLS = ("sendThreadPoolQueue", "pullThreadPoolQueue", "ackThreadPoolQueue", "queryThreadPoolQueue", "endTransactionQueue")


class AdminBroker:
    def __init__(self, core: Core) -> None:
        self._core = core

    def processors(self) -> dict[int, Processor]:
        return {25: self._change, 26: self._config, 28: self._runtime, 315: self._stats}

    def _config(self, request: Request) -> Frame:
        core = self._core
        lines = [f"{name}={_text(value)}" for name, value in core.options.table().items()
                 if name != "advertise" and name not in SECRET]
        lines += [line for option in OPTIONS if (line := _line(option, core.store.options[option.name]))]
        lines += [f"{name}={value}" for name, value in self._place().items()]
        version = body_of({"counter": 0, "timestamp": core.started_ms}).decode()
        return request.answer(ext={"version": version}, body="".join(f"{line}\n" for line in sorted(lines)).encode())

    def _place(self) -> dict[str, str]:
        """What is told as options, and cannot change."""
        host, _, port = self._core.address.rpartition(":")
        return {"brokerIP1": host, "listenPort": port, "storePathRootDir": self._core.store.path}

    def _change(self, request: Request) -> Frame:
        """Live options, all of them or none; a restart keeps them."""
        core = self._core
        try:
            given = parse(request.frame.body)
            for name, value in self._place().items():
                if (other := given.pop(name, value)) != value:
                    raise ConfigError(f"option {name} is {other!r:.200}, and this broker has {value}: start another one")
            core.kept.change(given)
        except (ConfigError, ValueError) as error:
            raise Refused(Code.SYSTEM_ERROR, str(error)) from None
        except OSError as error:
            raise Refused(Code.SYSTEM_ERROR, "the options have changed, but a restart of the broker forgets that: "
                          f"{error}") from None
        return request.answer()

    def _runtime(self, request: Request) -> Frame:
        core, store = self._core, self._core.store
        waiting = str(core.workers.waiting)
        info = store.runtime_info() | {
            "brokerVersionDesc": VERSIONS[core.version], "brokerVersion": str(core.version),
            "bootTimestamp": str(core.started_ms), "brokerActive": "true", "brokerRole": _ROLES[core.store.options.role],
            "startAcceptSendRequestTimeStamp": "0", "timerReadBehind": "0", "timerOffsetBehind": "0", "timerCongestNum": "0",
            "timerEnqueueTps": "0.0", "timerDequeueTps": "0.0"}
        for pool in _POOLS:
            info |= {f"{pool}Size": waiting, f"{pool}Capacity": "10000", f"{pool}HeadWaitTimeMills": "0"}
        info.setdefault("putLatency99", "0")
        info["now"] = str(int(time.time() * 1000))
        return request.answer(body=body_of({"table": info}))

    def _stats(self, request: Request) -> Frame:
        name, key = request.text("statsName"), request.text("statsKey")
        of_cluster = name.startswith("BROKER_") and key == self._core.options["brokerClusterName"]
        try:
            item = self._core.store.stats_item(name, "DefaultCluster" if of_cluster else key)
        except ArgumentIllegal:
            item = None
        if item is None:
            raise Refused(Code.SYSTEM_ERROR, f"The stats <{name:.80}> <{key:.511}> not exist")
        return request.answer(body=body_of(item))


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _line(option: Option, value: object) -> str:
    """An option of the store as RocketMQ names it; "" for one that RocketMQ has not, or that has no value."""
    if value is None or value == () or not option.upstream:
        return ""
    name, translation = next(iter(option.upstream.items()))
    if translation is not None:
        found = next((text for text, own in translation.items() if own == value), "")
        return f"{name}={found.upper() if '_' in found or name == 'brokerRole' else found}" if found else ""
    if option.kind in ("levels", "hours"):
        return ""
    if option.kind == "listen":
        value = str(value).rpartition(":")[2]
    return f"{name}={_text(value)}"
