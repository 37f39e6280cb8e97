"""A copy of a store's directory as a crash would leave it, taken while the store is open."""
import shutil
from pathlib import Path

_ALLOCATING = shutil.ignore_patterns(".alloc")      # the next log file is made in there, and may leave while it is copied


def take_image(live: Path, image: Path, *, over: bool = False) -> Path:
    """Copies `live` to `image`, which must not be there unless `over`. The caller settles what the store still writes."""
    return shutil.copytree(live, image, ignore=_ALLOCATING, dirs_exist_ok=over)
