"""A fresh table of queues under tmp_path, and opening the same directory again."""
import pytest

from rmq_store.queues.consumequeue._owner import QueueTableOwner
from rmq_store.queues.consumequeue.loader import load_queues


@pytest.fixture
def tmp_path(memory_disk):
    """A queue file is synced before it has its name: thousands of them would wait for a device, about which nothing here is."""
    return memory_disk


@pytest.fixture
def table_at(tmp_path):
    """table_at(...) opens the table under tmp_path and loads what is there; files of 10 entries."""
    (tmp_path / ".alloc").mkdir()

    def make(*, load=True, **options):
        options = {"file_size": 200, "ext_file_size": 0} | options
        table = QueueTableOwner(str(tmp_path / "consumequeue"), ext_dir=str(tmp_path / "consumequeue_ext"),
                                tmp_dir=str(tmp_path / ".alloc"), **options)
        if load:
            load_queues(table)
        return table

    return make
