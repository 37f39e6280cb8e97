"""What copies and backups make: the real RocketMQ reads it to the end, and as we do."""
from pathlib import Path

from rmq_store import MessageStore, copy_messages
from tests.interop import content, jvm, ours
from tests.interop.test_java_reads_ours import compare


def test_reads_a_backup_of_an_open_store(java: list[jvm.JavaStore], tmp_path: Path) -> None:
    root, case = tmp_path / "store", content.CASES["rolled"]
    written = ours.write(root, "rolled")
    with MessageStore.open(root, **case.files, **case.settings) as store:
        store.backup(tmp_path / "backups")
        made = store.backup(tmp_path / "backups")
    assert made.linked_bytes > 0
    for found in compare(java, Path(made.path), case).values():
        assert sorted(found) == written


def test_reads_a_copy_as_it_is(java: list[jvm.JavaStore], tmp_path: Path) -> None:
    root, case = tmp_path / "store", content.CASES["rolled"]
    written = ours.write(root, "rolled")
    copy_messages(root, tmp_path / "to", as_is=True, **case.files, **case.settings)
    for found in compare(java, tmp_path / "to", case).values():
        assert sorted(found) == written
