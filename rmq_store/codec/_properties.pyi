from collections.abc import Mapping
from typing import Literal

from typing_extensions import Buffer

Compat = Literal["4.9", "5.x"]

def encode_properties(mapping: Mapping[str, str | None] | Buffer | None, compat: Compat = "5.x") -> bytes: ...
def decode_properties(data: Buffer) -> dict[str, str]: ...
def decode_text(data: Buffer) -> str: ...
