"""What this package said inside Spark, out of Spark's words around it: tracebacks, SQLSTATEs, plans. Any thread."""
import re
from typing import Any, cast

from rmq_store import errors
from rmq_store.errors import CorruptionError, RmqStoreError

__all__ = ["said", "told"]

_OURS = re.compile(r"^(?:pyspark\.\S+: )?rmq_store\.errors\.(\w+): (.+)$", re.MULTILINE)
_SYSTEM = re.compile(r"^(?:\w+Error): \[Errno (\d+)\] (.+?)(?:: '(.*)')?$", re.MULTILINE)
_CORRUPTION = re.compile(r"(.*?)(?: at offset (\d+))?: expected (.*?), found (.*?): (.*)")


def told(error: BaseException) -> Exception | None:
    """The error of this library, or of the system, that ended a task or a planner, as it would be without Spark. None: Spark's
    own message is all there is."""
    if isinstance(error, (RmqStoreError, OSError)):
        return error
    ours = list(_OURS.finditer(str(error)))
    if ours:
        kind: Any = getattr(errors, ours[-1][1], RmqStoreError)
        text = ours[-1][2].strip()
        parts = _CORRUPTION.fullmatch(text)
        if parts is not None and issubclass(kind, CorruptionError):
            made = kind(parts[1], None if parts[2] is None else int(parts[2]), parts[3], parts[4])
            made.cure = parts[5]
            return cast(Exception, made)
        return _with_text(kind, text)
    system = list(_SYSTEM.finditer(str(error)))
    if system:
        code, text, path = system[-1].groups()
        return OSError(int(code), text, path)
    return None


def said(error: BaseException) -> str:
    """Spark's own words for an error, without its plans and stacks."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _with_text(kind: type[RmqStoreError], text: str) -> RmqStoreError:
    """An error of a kind whose words are known, and not what they were made of."""
    same: dict[str, Any] = {"__init__": lambda self, words: Exception.__init__(self, words),
                            "__str__": lambda self: str(self.args[0]), "__module__": kind.__module__}
    made: RmqStoreError = type(kind.__name__, (kind,), same)(text)
    return made
