"""A broker that is a slave: whom it follows, and what it answers because it is one (RocketMQ: BrokerController with
BrokerRole.SLAVE).

The master's addresses come from options, or from the name server with each registration. Thread-safety: every method.
"""
import logging
import threading

from rmq_store.broker.core import Core
from rmq_store.config.load import Options
from rmq_store.errors import ConfigError, RmqStoreError
from rmq_store.events import printable

__all__ = ["Following", "check_role", "own_id"]

log = logging.getLogger("rmq_store.broker")


def check_role(options: Options, *, broker_id: int, asks: bool) -> None:
    """Before anything is made. asks: whether a name server of others may tell the addresses of a slave's master. Raises
    ConfigError for what cannot be a broker."""
    if options.readonly:
        raise ConfigError("option readonly is true, and a broker takes messages and offsets: leave readonly out")
    if options.role != "slave":
        return
    if broker_id == 0:
        raise ConfigError("option brokerId is 0, which is a master's, and brokerRole is SLAVE: give each slave of a "
                          "brokerName a brokerId of its own, from 1 on")
    if options.ha_master is None and not asks:
        raise ConfigError("brokerRole is SLAVE, and no option names its master: give haMasterAddress=HOST:PORT, or --namesrv "
                          "of the name server with which the master registers")


def own_id(role: str, broker_id: int) -> int:
    """The broker id of a broker in this role: 0 of a master, whatever the option says, as in RocketMQ."""
    if role != "slave" and broker_id != 0:
        log.warning("option brokerId is %d, and this broker is a master, whose id is 0: the option has no effect", broker_id)
        return 0
    return broker_id


class Following:
    """Makes the store of a slave follow its master."""

    def __init__(self, core: Core, *, asks: bool) -> None:
        """asks: whether a name server of others may tell the master's addresses. Raises OSError."""
        self._core, self._lock = core, threading.Lock()
        self._failed = ""
        self._waits = False
        self._mute: str | None = None       # a master without an address for slaves, of whom the log has said so
        options = core.store.options
        if options.ha_master_broker is None and not asks:
            log.warning("this slave copies messages alone: topics, groups and offsets come from the master's broker, so give "
                        "--namesrv, or "
                        "ha_master_broker=HOST:PORT")
        self._follow(None, None)

    def learn(self, broker: str, ha: str) -> None:
        """What a name server says of the master: the addresses of its broker and of its HA service, "" while it knows no
        master."""
        self._core.master_address = broker
        self._core.look()
        if broker or ha:
            self._waits = False
            self._follow(broker or None, ha or None)
        elif not self._waits and self._core.store.options.ha_master is None:
            self._waits = True              # said once
            log.warning("the name server knows no master of %s: this slave follows nobody, and asks again after 1, 2, 4 ... "
                        "seconds",
                        self._core.options["brokerName"])

    def _follow(self, broker: str | None, ha: str | None) -> None:
        store = self._core.store
        options = store.options
        master, metadata = options.ha_master or ha, options.ha_master_broker or broker
        if master is None and broker is not None and self._mute != broker:
            self._mute = broker
            log.warning("the master at %s listens for no slaves, says the name server, so this one follows nobody: give the "
                        "master haListenPort", printable(broker))
        if master is None or store._replication is None:
            return
        with self._lock:
            try:
                store._replication.follow(store, options, master, metadata, self._core.tls)
                self._failed = ""
            except (OSError, ValueError, RmqStoreError) as error:
                if broker is None and ha is None:
                    raise
                if str(error) != self._failed:      # said once; the next registration tries again
                    self._failed = str(error)
                    log.error("the slave cannot follow %s: %s", printable(str(master)), printable(str(error)))
