from typing import final

KINDS: tuple[str, ...]

@final
class Notes:
    def __init__(self) -> None: ...
