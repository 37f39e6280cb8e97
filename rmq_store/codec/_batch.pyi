from typing import NamedTuple, Unpack

from typing_extensions import Buffer

from rmq_store.codec._codec import _BatchFields

class BatchMessage(NamedTuple):
    body: bytes
    properties: bytes
    flag: int

def decode_batch(batch: Buffer) -> list[BatchMessage]: ...
def expand_batch(batch: Buffer, topic: str | bytes, **fields: Unpack[_BatchFields]) -> bytes: ...
