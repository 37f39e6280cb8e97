from collections.abc import Callable

from rmq_store.access.writer.hooks import PutMessage
from rmq_store.status import PutStatus

def hook_of_capsule(capsule: object) -> Callable[[PutMessage], PutStatus]: ...
