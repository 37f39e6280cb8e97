"""What the processors of one broker share, and the table of codes (RocketMQ: BrokerController)."""
import itertools
import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING

from rmq_store.broker.clients import Clients
from rmq_store.broker.codes import Code
from rmq_store.broker.gathered import Gathered
from rmq_store.broker.holding import HeldPulls
from rmq_store.broker.kept import Kept
from rmq_store.broker.options import BrokerOptions, split
from rmq_store.broker.request import Handle, Refused, Request
from rmq_store.broker.resources import ROWS
from rmq_store.broker.topics import Groups, Topics
from rmq_store.broker.workers import Workers
from rmq_store.errors import RmqStoreError, StoreStateError
from rmq_store.network.front import Answer, NativeFront
from rmq_store.remoting.frame import ONEWAY, RESPONSE, Frame, encode, fitting
from rmq_store.store import MessageStore

if TYPE_CHECKING:
    import ssl

    from rmq_store.broker.access import Access

__all__ = ["BUSY", "Core", "Processor", "Processors"]

log = logging.getLogger("rmq_store.broker")
Steps = Generator[Frame | None, None, None]
Processor = Callable[[Request], Frame | Steps | None]
FAILED = "request %d of %s failed: %s"
BUSY = "[REJECTREQUEST]system busy, start flow control for a while"
SENDS = (10, 310, 320)
STORING = (*SENDS, 15, 36, 37, 324, 325)        # a request is done although its client has gone; others are dropped
WAITED = "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: %dms"
VERSIONS = {"4.9": 409, "5.x": 479}     # ordinals of 4.9.8 and 5.3.3, which clients switch on


class Core:
    """The parts of one broker. Set while it opens, and not changed afterwards."""

    store: MessageStore
    options: BrokerOptions
    topics: Topics
    groups: Groups
    clients: Clients
    held: HeldPulls
    answered: Callable[[int, Frame], None]      # a client has answered: the id of its connection, and the answer
    workers: Workers
    processors: "Processors"
    front: NativeFront
    kept: Kept
    look: Callable[[], None]    # tells the network thread what changed
    access: "Access | None" = None      # who may send which request; None: everybody may send all
    tls: "ssl.SSLContext | None" = None         # of connections to name servers and to a master; None: they are plain
    address: str            # host:port that routes and message ids name
    started_ms: int
    broker_id: int = 0
    master_address: str = ""            # of a slave: where its master's broker is, as far as a name server knows one

    def __init__(self) -> None:
        self._opaque = itertools.count(1)
        self.serving = threading.local()    # .request: this thread has a request, or a step of it, at hand
        self.gathered = Gathered(log)       # for lines that a peer can cause

    @property
    def modern(self) -> bool:
        """Whether this broker has the face of 5.x."""
        return bool(self.store.options.compat == "5.x")

    @property
    def is_slave(self) -> bool:
        return bool(self.store.options.role == "slave")

    @property
    def version(self) -> int:
        return VERSIONS[self.store.options.compat]

    def reconfigure(self, given: Mapping[str, object]) -> None:
        """Live options of the broker and of its store, all of them or none. Raises ConfigError."""
        own, others = split(given)
        self.options.check(own)
        self.store.reconfigure(**others)        # type: ignore[arg-type]
        self.options.change(own)

    @property
    def held_count(self) -> int:
        """Pulls that wait for a message, in Python or in the network thread."""
        return self.held.count + self.front.held()

    def next_opaque(self) -> int:
        """The number of a request of the broker's own."""
        return next(self._opaque) & 0x7FFFFFFF

    def push(self, connection: Handle, code: int, ext: dict[str, str], body: bytes = b"", *, oneway: bool = True,
             opaque: int | None = None) -> bool:
        """Sends a request of the broker's own; its answer goes to whoever waits for this opaque. False: the connection has
        ended."""
        opaque = self.next_opaque() if opaque is None else opaque
        return connection.send(encode(Frame(code, opaque, ext, body, ONEWAY if oneway else 0, language="JAVA",
                                            version=self.version)))

    def reply(self, request: Request, answer: Frame) -> None:
        """Sends the answer to a request that was held back, behind what the request changed."""
        self.look()
        if not request.frame.flag & ONEWAY:
            request.connection.send(encode(self.dressed(answer)))

    def dressed(self, answer: Frame) -> Frame:
        answer = fitting(answer)
        answer.language, answer.version = "JAVA", self.version
        return answer


class Processors:
    """The table code -> processor. Any front hands every request to `answer`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        core.processors = self
        self._table: dict[int, tuple[Processor, bool]] = {}
        self._counts: dict[int, int] = {}

    def add(self, processors: dict[int, Processor], *, slow: bool = False) -> None:
        """slow: they wait for a device or for many records, so that a worker thread runs them."""
        for code, processor in processors.items():
            if code not in ROWS:
                raise KeyError(f"request code {code} has no row in broker/resources.py: say what an account needs for it")
            self._table[code] = (processor, slow)

    def counts(self) -> dict[int, int]:
        """Requests by code; those that no processor has are under -1."""
        answered = self._core.front.requests()
        return {code: self._counts.get(code, 0) + answered.get(code, 0) for code in {*self._counts, *answered}}

    def answer(self, connection: Handle, frame: Frame) -> Answer:
        """The answer to a request; None: it comes later, by connection.send, or not at all; a generator: it is not done, see
        network/front.py. An answer of a client goes to whoever asked it."""
        if frame.flag & RESPONSE:
            self._core.answered(connection.id, frame)
            return None
        request = Request(connection, frame)
        counted = frame.code if frame.code in self._table else -1
        self._counts[counted] = self._counts.get(counted, 0) + 1
        if self._core.access is not None:
            try:
                request.account = self._core.access.check(connection, frame)
            except Refused as refused:
                return self._core.dressed(request.answer(refused.code, refused.remark))
        processor, slow = self._table.get(frame.code, (_not_supported, False))
        if not slow:
            return self.run(processor, request)
        if not self.later(processor, request):
            return self._core.dressed(frame.answer(Code.SYSTEM_BUSY, BUSY))
        return None

    def later(self, processor: Processor, request: Request) -> bool:
        """Runs it in a worker. False: too much waits there."""
        begun, frame = time.monotonic(), request.frame
        return self._core.workers.submit(lambda: self._run_later(processor, request, begun), len(frame.body),
                                         request.connection.id, stays=frame.code in STORING)

    def _run_later(self, processor: Processor, request: Request, begun: float) -> None:
        """A send that waited too long is not stored: its client has turned elsewhere, or is about to."""
        waited_ms = (time.monotonic() - begun) * 1000
        if request.frame.code in SENDS and waited_ms >= self._core.options["waitTimeMillsInSendQueue"]:
            answer: Frame | None = request.answer(Code.SYSTEM_BUSY, WAITED % waited_ms)
        else:
            answer = self._whole(self.run(processor, request))
        if answer is not None:
            self._core.reply(request, answer)

    @staticmethod
    def _whole(answer: Answer) -> Frame | None:
        """All steps at once, in a worker."""
        if not isinstance(answer, Generator):
            return answer
        try:
            while True:
                next(answer)
        except StopIteration as end:
            return end.value        # type: ignore[no-any-return]

    def run(self, processor: Processor, request: Request) -> Answer:
        """Whatever a processor raises becomes an answer. What it changed is told to the network thread first. A processor that
        works in steps yields None until it yields its answer."""
        answer = self._run(processor, request)
        if not isinstance(answer, Generator):
            self._core.look()
            return None if answer is None else self._core.dressed(answer)
        turns = self._turns(answer, request)
        try:
            next(turns)             # most need no second one
        except StopIteration as end:
            return end.value        # type: ignore[no-any-return]
        return turns

    def _turns(self, steps: Steps, request: Request) -> Generator[None, None, Frame | None]:
        while True:
            answer = self._run(lambda request: next(steps), request)
            self._core.look()
            if answer is not None:
                assert isinstance(answer, Frame)
                return self._core.dressed(answer)
            yield

    def _run(self, processor: Processor, request: Request) -> Frame | Steps | None:
        self._core.serving.request = True
        try:
            answer: Frame | Steps | None = processor(request)
        except Refused as refused:
            answer = request.answer(refused.code, refused.remark)
            refused.forget()
        except StoreStateError as error:
            answer = request.answer(Code.SERVICE_NOT_AVAILABLE, str(error))
        except ValueError as error:         # a name or a number that the store refuses
            answer = request.answer(Code.SYSTEM_ERROR, str(error))
        except (RmqStoreError, OSError) as error:
            self._core.gathered.say(logging.ERROR, f"request {request.frame.code}", FAILED, request.frame.code,
                                    request.connection.peer, error)
            answer = request.answer(Code.SYSTEM_ERROR, str(error))
        except BaseException as error:      # sys.exit() of a put hook, too: the thread is that of all requests
            self._core.gathered.say(logging.ERROR, f"request {request.frame.code}, {type(error).__name__}", FAILED,
                                    request.frame.code, request.connection.peer, error, failure=error)
            answer = request.answer(Code.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        finally:
            self._core.serving.request = False
        return answer


def _not_supported(request: Request) -> Frame:
    return request.answer(Code.NOT_SUPPORTED, f" request type {request.frame.code} not supported")
