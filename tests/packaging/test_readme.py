"""The README's example, run as it stands, does what its comments say."""
import pathlib
import re

README = pathlib.Path(__file__).parents[2] / "README.md"


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    example = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    exec(compile(example, str(README), "exec"), {})
    put, got, found = capsys.readouterr().out.splitlines()
    assert put.startswith("PUT_OK 0 7F000001")
    assert got == "0 paid b'12 EUR'"
    assert found == "[0]"
    assert (tmp_path / "orders-store" / "commitlog").is_dir()


def test_it_stays_short():
    assert len(README.read_text().splitlines()) <= 100
