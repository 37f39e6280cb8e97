"""`rmqstore stat` beside a writer: what it prints is of the store, and not of its own look."""
import json

import pytest

from rmq_store import MessageStore
from rmq_store.cli.main import main


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_healthy_writer_is_not_called_not_writeable(tmp_path, capsys, more):
    with MessageStore.open(tmp_path / "s", profile="dev") as store:
        store.put("T", b"x")
        assert main(["stat", str(tmp_path / "s"), *more]) == 0
    out = capsys.readouterr().out
    assert "NOT_WRITEABLE" not in out and "readonly" not in out
    if more:
        assert json.loads(out.splitlines()[0])["in_use"] is True
