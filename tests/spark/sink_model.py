"""A model of rows for the sink: which rows must be in the store, once, after any sequence of writes, batches of streams, kills
and failures, moves, cleanings, puts of others and bulk loads. It goes by what was asked, where a process ended, and what is in
the logs; a journal is looked at only to say whether it is there, and still pending, where no row can tell.
"""
import json
import os
import random
import subprocess
import sys
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path

__all__ = ["World", "Wrong"]

ROOT = Path(__file__).resolve().parents[2]
STEPS = ("staged", "verified", "opened", "recovered", "counted", "pending", "appended", "flushed", "done")


class Wrong(AssertionError):
    """The store is not what the model says."""


@dataclass
class Commit:
    """One write. sent: rows from the first one on that were seen in the log; left: those of them that cleaning spared."""

    tag: str
    rows: list
    app: str
    version: int
    begin: int              # where the log ended before
    query: str | None = None
    state: str = "none"     # or pending (decided, and broken off), stored
    sent: int = 0
    left: int = 0
    cleaned_to: int = 0     # where the log began when it was last cleaned


@dataclass
class App:
    """An application. done: its newest version that is in the store. query: of a stream, whose next batch is done + 1."""

    name: str
    query: str | None = None
    done: int = -1
    last: Commit | None = None
    failed: Commit | None = None    # a batch that its stream brings again


@dataclass
class Load:
    """A directory of a bulk load."""

    root: str
    stored: list = field(default_factory=list)
    pending: list = field(default_factory=list)
    number: int = 0


class Worker:
    """sink_worker.py in a process."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-m", "tests.spark.sink_worker"], cwd=ROOT, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ask(self, **command):
        print(json.dumps(command), file=self.process.stdin, flush=True)
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer and answer["error"] not in ("ConfigError", "StoreStateError"):
            raise Wrong(f"{answer['error']}: {answer['text']}")
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class World:
    """A store, what is written to it, and what must be in it. step() does something at random, and looks."""

    def __init__(self, place, seed, worker, plant=None):
        self.random, self.worker, self.plant = random.Random(seed), worker, plant
        self.place, self.said = str(place), []
        self.root = os.path.join(self.place, "s0")
        self.log = os.path.join(self.place, "log0") if seed % 2 else None
        self.commits, self.apps, self.names = [], [App("a"), App("b"), App("s", self._query()), App("t", self._query())], 0
        self.load = Load(os.path.join(self.place, "load"))
        self.used, self.end = False, 0

    def _query(self):
        return str(uuid.UUID(int=self.random.getrandbits(128)))

    def _name(self):
        self.names += 1
        return f"n{self.names}"

    @property
    def options(self):
        return {} if self.log is None else {"commitlog_path": self.log}

    # ---- what is done

    def step(self):
        kinds = {self.write_once: 3, self.write: 4, self.batch: 6, self.new_checkpoint: 1, self.old_checkpoint: 1, self.move: 2,
                 self.clean: 3, self.put: 4, self.bulk_load: 2, self.mix: 1, self.forget_the_log: 1}
        kind = self.random.choices(list(kinds), list(kinds.values()))[0]
        self.said.append(kind.__name__)
        kind()

    def write_once(self):
        """Without an application."""
        job = uuid.UUID(int=self.random.getrandbits(128)).hex
        self._commit(App(job), self._new(job, 0), job)

    def write(self):
        """A version of an application: the next one, or one that it has."""
        app = self.random.choice(self.apps[:2])
        pending = next((c for c in self.commits if c.app == app.name and c.state == "pending"), None)
        if pending is not None and self.random.random() < 0.5:
            commit = replace(pending, state="none")
        else:
            newest = max(app.done, -1 if pending is None else pending.version)
            commit = self._new(app.name, max(0, newest + self.random.choice((1, 1, 1, 0, -1))))
        self._commit(app, commit)

    def batch(self):
        """The next batch of a stream, or the last one again: the one that failed, or as if its checkpoint did not know."""
        app = self.random.choice(self.apps[2:])
        commit = app.failed
        if commit is None and app.last is not None and self.random.random() < 0.2:
            commit = app.last
        self._commit(app, replace(commit, state="none") if commit else self._new(app.name, app.done + 1, app.query))

    def new_checkpoint(self):
        """Its query is another one then: it is refused if the application has anything, and gets an application of its own."""
        app = self.random.choice(self.apps[2:])
        query, had = self._query(), any(c.app == app.name and c.state != "none" for c in self.commits)
        if had:
            version = self.random.choice((0, max(0, app.done), app.done + 1))
            self._refused(self._ask(self._new(app.name, version, query), None), "ConfigError", query)
            name = self._name()
            self.apps[self.apps.index(app)] = App(name, query)
        else:
            app.query, app.failed = query, None

    def old_checkpoint(self):
        """Batches come again with other rows, or after later ones."""
        app = self.random.choice(self.apps[2:])
        if app.done >= 1:
            commit = self._new(app.name, app.done - self.random.randint(0, 1), app.query)
            if commit.version == app.done:
                commit.rows = [*app.last.rows, "one more"]
            self.said[-1] += f" {commit.app} {commit.version} {len(commit.rows)}, done {app.done} {app.last.version}"
            self._refused(self._ask(commit, None), "StoreStateError", "Spark writes")

    def move(self):
        """The store, its log if that is elsewhere, or both."""
        if not self.used:
            return
        which = self.random.choice(("root", "log", "both")) if self.log else "root"
        if which != "log":
            os.rename(self.root, new := os.path.join(self.place, self._name()))
            self.root = new
        if which != "root":
            os.rename(self.log, new := os.path.join(self.place, self._name()))
            self.log = new
            if os.path.exists(alloc := self.log + ".alloc"):
                raise Wrong(alloc)

    def clean(self):
        if not self.used:
            return
        rows, _ = self._read()
        first = self.worker.ask(do="clean", root=self.root, options=self.options)["result"]
        for commit in self.commits:
            commit.left = sum(offset >= first for offset, body in rows if tag(body) == commit.tag)
            commit.cleaned_to = first
        self.look()

    def put(self):
        """Others, not Spark."""
        commit = self._new("others", 0)
        commit.rows = commit.rows[:self.random.choice((1, 5, 200))]
        self.worker.ask(do="put", root=self.root, rows=commit.rows, options=self.options)
        commit.state, self.used = "stored", True
        self.commits.append(commit)
        self.look()

    def bulk_load(self):
        load = self.load
        load.number += 1
        rows = [f"load{load.number}.{i}" for i in range(self.random.choice((0, 1, 30)))]
        die = self.random.choice((None, None, "staged", "pending", "renamed", "done"))
        answer = self._where("load", load.root, app=f"load{load.number}", version=0, job=f"job{load.number}", rows=rows,
                             tasks=self.random.randint(1, 3), die=die, fails=self.random.random() < 0.3)
        if "pending" in answer["steps"]:
            load.pending += rows
        if "ended" not in answer:
            if answer.get("result") is not False:
                raise Wrong(f"bulk load: {answer}")
            load.stored, load.pending = load.stored + load.pending, []
        found = self._loaded()
        if not set(load.stored) <= set(found) <= {*load.stored, *load.pending} or len(found) != len(set(found)):
            raise Wrong(f"the bulk load has {sorted(found)}, stored were {load.stored}, decided {load.pending}")

    def mix(self):
        """A store where a bulk load is, and the other way round; also where either is only decided."""
        if self.load.stored or self.load.pending:
            self._refused(self._where("write", self.load.root, app="x", version=0, job="x", rows=["x"], tasks=1, options={}),
                          "ConfigError", "bulk load")
        if self.used:
            self._refused(self._where("load", self.root, app="x", version=0, job="x", rows=["x"], tasks=1), "ConfigError",
                          "is a store itself")

    def forget_the_log(self):
        if self.log is not None and any(c.state != "none" and c.app != "others" for c in self.commits):
            self._refused(self._where("write", self.root, app="x", version=0, job="x", rows=["x"], tasks=1, options={}),
                          "ConfigError", "give store.commitlog_path")
            if os.path.exists(os.path.join(self.root, "commitlog")):
                raise Wrong("there is a second log")

    # ---- commits

    def _new(self, app, version, query=None):
        name = self._name()
        n, pad = self.random.choice((0, 1, 7, 60, 150)), "x" * self.random.choice((0, 20, 200))
        alike = self.random.random() < 0.2          # rows that nothing but their place tells apart
        return Commit(name, [f"{name}.{'' if alike else i}.{pad}" for i in range(n)], app, version, self.end, query)

    def _ask(self, commit, die, job=None):
        return self._where("write", self.root, app=commit.app, version=commit.version, job=job or f"job{commit.tag}",
                           rows=commit.rows, tasks=self.random.randint(1, 4), query=commit.query, die=die,
                           fails=self.random.random() < 0.3, fsync=self.random.random() < 0.5,
                           options=self.options | {"write_path": self.random.choice(("mmap", "pool"))})

    def _where(self, do, root, **command):
        """Called by its whole path, or by one from some directory."""
        cwd = self.random.choice((None, self.place, os.path.dirname(self.place), "/"))
        if cwd is not None:
            command["cwd"], root = cwd, os.path.relpath(root, cwd)
        return self.worker.ask(do=do, root=root, plant=self.plant, **command)

    def _refused(self, answer, kind, words):
        if answer.get("error") != kind or words not in answer["text"]:
            raise Wrong(f"not refused with {kind} ({words}): {answer}")
        self.look()

    def _commit(self, app, commit, job=None):
        die = self.random.choice((None, None, None, *STEPS, "appended", "done", *range(0, 12, 3)))
        undecidable = [c for c in self.commits if c.state == "pending" and self._may_be_refused(c)]
        answer = self._ask(commit, die, job)
        self.said[-1] += f" {commit.app} {commit.version} {len(commit.rows)} die={die} {answer}"
        self.used = self.used or "opened" in answer["steps"]
        stream = app.query is not None
        if answer.get("error"):
            mine = [c for c in undecidable if c.app == commit.app]
            if not mine or answer["error"] != "StoreStateError" or "cannot be completed" not in answer["text"]:
                raise Wrong(f"refused: {answer}")
            self._forget(app, mine[0])
            return
        if "pending" in answer["steps"]:
            if any(c.app == commit.app and c.version == commit.version for c in self.commits):
                raise Wrong(f"version {commit.version} of {commit.app} was decided before, and is decided again")
            commit.state = "pending"
            self.commits.append(commit)
        if "ended" in answer:
            if stream:
                app.failed = commit
            self.look()
            if commit.state == "pending" and answer["steps"][-1] == "done":
                self._over(app, commit)
            return
        if not answer["result"]:
            if commit.state != "pending":
                raise Wrong(f"{commit.tag} is called done, and was not decided: {answer}")
            self._over(app, commit)
        self.look()
        self._settled(undecidable)
        others = [c for c in self.commits if c.state == "pending" and c not in undecidable]
        for other in others if "recovered" in answer["steps"] else ():      # a repeat is told so without a look at others
            raise Wrong(f"{other.tag} of {other.app} was decided, and is not complete: {other.left} rows of {len(other.rows)}")
        if answer["result"] and commit.version > app.done:
            raise Wrong(f"version {commit.version} of {app.name} is called repeated")
        if stream:
            app.failed = None

    def _settled(self, undecidable):
        """A commit went well: what had been decided before is complete, but for what nobody can tell any more."""
        for commit in [c for c in self.commits if c.state == "pending"]:
            if commit.sent == len(commit.rows) and (commit not in undecidable or not self._still_pending(commit)):
                self._over(next((a for a in self.apps if a.name == commit.app), App(commit.app)), commit)

    def _over(self, app, commit):
        if commit.sent != len(commit.rows):
            self.look()
        if commit.sent != len(commit.rows):
            raise Wrong(f"{commit.tag} is called done with {commit.sent} rows of {len(commit.rows)}")
        commit.state = "stored"
        app.done, app.last = max(app.done, commit.version), commit

    def _may_be_refused(self, commit):
        """Cleaning has passed where the log ended before the commit, and left none of its rows."""
        return commit.cleaned_to > commit.begin and commit.left == 0

    def _journal(self, commit):
        from rmq_store.spark import staging

        return staging.journal_of(self.root, commit.app)

    def _still_pending(self, commit):
        if not os.path.exists(self._journal(commit)):
            return False
        with open(self._journal(commit), encoding="utf-8") as file:
            return json.load(file).get("pending") is not None

    def _forget(self, app, commit):
        """What the refusal says: the journal is moved away; what is stored of the commit stays."""
        os.rename(self._journal(commit), os.path.join(self.place, self._name()))
        commit.state, commit.rows, commit.version = "stored", commit.rows[:commit.sent], -1
        app.done, app.last, app.failed = -1, None, None
        self.look()
        if app.query is not None:
            self.apps[self.apps.index(app)] = App(self._name(), self._query())

    # ---- what must be there

    def _read(self):
        answer = self.worker.ask(do="read", root=self.root, options=self.options)
        if "error" in answer:
            raise Wrong(f"the store cannot be read: {answer}")
        rows, self.end = answer["result"]
        return rows, self.end

    def look(self):
        """Rows of commits that are stored are there once, as far as cleaning spared them; those of a commit that broke off from
        the first one on, without a gap; no others."""
        if not self.used:
            return
        found = {}
        for _, body in self._read()[0]:
            found.setdefault(tag(body), []).append(body)
        for commit in self.commits:
            there = found.pop(commit.tag, [])
            cleaned = commit.sent - commit.left
            sent = cleaned + len(there)
            if commit.state == "stored" and sent != len(commit.rows):
                raise Wrong(f"{commit.tag} of {commit.app}: {len(there)} rows are there, it had {len(commit.rows)}, "
                            f"{cleaned} were cleaned")
            if sent < commit.sent or there != commit.rows[cleaned:sent]:
                raise Wrong(f"{commit.tag} of {commit.app}: {len(there)} rows are there, and not those from {cleaned} on: "
                            f"{there[:3]}")
            commit.sent, commit.left = sent, len(there)
        if found:
            raise Wrong(f"rows of nobody: {[(name, len(rows)) for name, rows in found.items()]}")

    def _loaded(self):
        found = []
        for name in sorted(os.listdir(self.load.root)) if os.path.isdir(self.load.root) else ():
            if name.startswith("shard-"):
                rows = self.worker.ask(do="read", root=os.path.join(self.load.root, name), options={})["result"][0]
                found += [body for _, body in rows]
        return found


def tag(body):
    return body.partition(".")[0]
