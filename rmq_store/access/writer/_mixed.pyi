from typing import final

@final
class Mixed:
    def __init__(self, room: int) -> None: ...
