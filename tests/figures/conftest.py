"""A small repository whose steps are scripts of a test."""
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A step: notes that it ran, does as its argument says, and writes one figure.
WORK = '''
import json, os, pathlib, signal, subprocess, sys, time
name, what, directory, out = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[4]), pathlib.Path(sys.argv[6])
noted = pathlib.Path(os.environ["NOTED"])
with noted.open("a") as file:
    file.write(name + "\\n")
(directory / "left").write_text("x")
if what == "fail":
    sys.exit("no such luck")
if what == "hang":
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    (noted.parent / "pids").write_text(f"{os.getpid()} {child.pid}")
    os.mkfifo(noted.parent / "never") if not (noted.parent / "never").exists() else None
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    open(noted.parent / "never").read()
if what == "dirty":
    pathlib.Path("work.py").open("a").write("# changed meanwhile")
if what == "empty":
    out.write_text(json.dumps({"runs": {}, "missing": {}, "failed": {}}))
elif what != "silent":
    out.write_text(json.dumps({"runs": {"case": {"rmq_store": [{"msgs_per_s": 7}]}}, "missing": {"case/fio": "not here"},
                               "failed": {"other/rmq_store": "broken"} if what == "partly" else {}}))
sys.exit({"late": 3, "partly": 1}.get(what, 0))
'''

DRIVER = '''
import sys
from pathlib import Path
from bench.figures import run
from bench.figures.steps import Step
from rmq_store.bench.runner import interruptible
run.GRACE_S = 1.0
root, directory, quick, again = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "1", sys.argv[4] == "1"
steps = [Step(name, 1, ("work", name, what), "a test") for name, what in (text.split("=") for text in sys.argv[5:])]
try:
    with interruptible():
        failed = run.run_all(steps, run.Keeper(root, run.Conditions.now(root, directory, quick)), directory, again,
                             lambda text: print(text, flush=True))
except run.Refused as why:
    sys.exit(f"refused: {why}")
sys.exit(1 if failed else 0)
'''


@dataclass
class Checkout:
    root: Path
    directory: Path
    environment: dict[str, str] = field(default_factory=dict)

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.root), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def commit(self, text: str = "one") -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", text)
        return self.git("rev-parse", "HEAD").strip()

    def noted(self) -> list[str]:
        """The steps that ran, in order."""
        path = Path(self.environment["NOTED"])
        return path.read_text().split() if path.exists() else []

    def kept(self, name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.root / "build/figures" / self.git("rev-parse", "HEAD").strip()
                                               / f"{name}.json").read_text())
        return found

    def start(self, *steps: str, quick: bool = False, again: bool = False) -> "subprocess.Popen[str]":
        return subprocess.Popen([sys.executable, "-c", DRIVER, str(self.root), str(self.directory), str(int(quick)),
                                 str(int(again)), *steps], cwd=ROOT, env=os.environ | self.environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, *steps: str, quick: bool = False, again: bool = False) -> tuple[int, str]:
        process = self.start(*steps, quick=quick, again=again)
        text = process.communicate(timeout=60)[0]
        return process.returncode, text


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root, directory = tmp_path / "checkout", tmp_path / "disk"
    root.mkdir()
    directory.mkdir()
    (root / "work.py").write_text(WORK)
    (root / ".gitignore").write_text("build/\n__pycache__/\n")
    made = Checkout(root, directory, {"NOTED": str(tmp_path / "noted"), "PYTHONDONTWRITEBYTECODE": "1"})
    made.git("init", "-q")
    made.commit()
    return made


