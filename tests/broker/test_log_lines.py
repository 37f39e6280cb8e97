"""What peers can make a broker write into its log."""
import logging
import time

from rmq_store import Broker
from rmq_store.broker.gathered import INTERVAL_S, Gathered
from rmq_store.cli import main
from rmq_store.events import Event, emit, printable
from tests.broker.peer import Peer
from tests.soon import until

FORGED = "evil\nERROR rmq_store: forged\x1b[31m\u2028\r"


def test_no_line_is_forged(tmp_path, caplog):
    with Broker.open(tmp_path / "s", profile="test", transactionTimeOut=100, transactionCheckInterval=100) as broker, \
            Peer(broker.address) as peer:
        names = {"TRAN_MSG": "true", "PGROUP": FORGED, "UNIQ_KEY": FORGED}
        assert peer.put(properties=names, g=int(time.time() * 1000)).code == 0
        until(lambda: "cannot be checked" in caplog.text)
    for record in caplog.records:
        assert record.getMessage().isprintable()


def test_one_line_of_a_kind_in_an_interval(caplog):
    now = [0.0]
    gathered = Gathered(logging.getLogger("rmq_store.broker"), lambda: now[0])
    for i in range(1000):
        gathered.say(logging.WARNING, "a", "group %s at %d", FORGED, i)
        gathered.say(logging.WARNING, "b", "other %d", i)
    now[0] = INTERVAL_S
    gathered.say(logging.WARNING, "a", "group %s at %d", "G", 7)
    assert caplog.messages == [f"group {printable(FORGED)} at 0", "other 0",
                               "group G at 7 (999 more of this kind since the line before)"]


def test_many_half_messages_write_few_lines(tmp_path, caplog):
    with Broker.open(tmp_path / "s", profile="test", transactionTimeOut=100, transactionCheckInterval=100) as broker, \
            Peer(broker.address) as peer:
        for i in range(100):
            peer.put(properties={"TRAN_MSG": "true", "PGROUP": f"g{i}"}, g=int(time.time() * 1000))
        until(lambda: "cannot be checked" in caplog.text)
        until(lambda: all(one.checks for one in broker.store.transactions()))
    assert caplog.text.count("cannot be checked") == 1


def test_events_escape_what_they_name(caplog):
    emit(Event.TOPIC_KEPT, file="f", topic=FORGED, reason=ValueError(FORGED))
    assert caplog.messages[0].isprintable()
    assert caplog.records[0].fields["topic"] == FORGED      # programs get it as it is


def test_a_line_of_a_command(capsys):
    """With the name of an event; nothing but its first line begins at the margin."""
    main._log_to_stderr(verbose=True)
    try:
        emit(Event.TOPIC_KEPT, file="f", topic="T", reason="r")
        try:
            raise ValueError(FORGED)
        except ValueError:
            logging.getLogger("rmq_store.broker").exception("it failed")
    finally:
        log = logging.getLogger("rmq_store")
        log.handlers[:] = [h for h in log.handlers if isinstance(h, logging.NullHandler)]
        log.setLevel(logging.NOTSET)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("WARNING rmq_store.consumer TOPIC_KEPT: ") or " TOPIC_KEPT: " in lines[0]
    assert lines[1] == "ERROR rmq_store.broker: it failed"
    assert all(line.startswith("  ") for line in lines[2:])


def test_dead_letters_of_clients_are_told_once_a_minute(tmp_path, caplog):
    """Whichever way a client takes: it sends a message back, or sends the last retry itself."""
    with Broker.open(tmp_path / "s", profile="test") as broker, Peer(broker.address) as peer:
        peer.beat(consumers={"G": {"T": "*"}})
        assert peer.put("%RETRY%G", b"x", j=3, l=3).code == peer.put().code == 0
        broker.store.wait_dispatched(10)
        offset = broker.store.get("T", 0, 0)[0].offset
        for _ in range(5):
            assert peer.ask(36, group="G", offset=offset, delayLevel=-1).code == 0
        (line,) = [text for text in caplog.messages if "goes to %DLQ%G" in text]
        assert "group G " in line
        broker._core.gathered._kinds.clear()
        assert peer.ask(36, group="G", offset=offset, delayLevel=-1).code == 0
        assert "of T goes to %DLQ%G" in caplog.messages[-1]
