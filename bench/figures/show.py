"""figures.html: what was asked, three plots that answer it, then every case in a table, and the machine."""
import statistics
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from bench import targets
from bench.figures.document import Document, Figures, NotMeasured
from bench.figures.tables import CPU, DURABLE, NAMES, TAIL, Column, cell, plain, rate, time
from rmq_store.bench import svg
from rmq_store.bench.case import OURS
from rmq_store.bench.report import STYLE, facts, table

AT_RATE, OVERTIME = "at_rate/put_1024", "overtime"
# who -> (case, figure) of asynchronous puts of 1 KiB, until all is on the device
BESIDE = {OURS: "beside/put_1024", "rocketmq": "beside/put_1024", "chronicle": "chronicle/async_1024",
          "lmdb": "databases/async_1024", "rocksdb": "databases/async_1024", "sqlite": "databases/async_1024"}
WORST = Column("worst", "max_us", time)
OWN = """
.lead { font-size: 1.05rem; } .answer { font-size: 1.05rem; margin: .2rem 0 .6rem; } ol li { margin: .3rem 0; }
.warn { color: var(--bad); font-weight: 600; } details { margin: .6rem 0; } summary { cursor: pointer; font-weight: 600; }
svg circle { fill: var(--page); }
"""


def _latency(f: Figures) -> tuple[str, str]:
    """Both stores at the same load."""
    sides = [s for s in (OURS, "rocketmq") if s in f.subjects(AT_RATE)]
    lines = [(NAMES[s], [(share, us * 1e3) for share, us in _points(f, s)]) for s in sides]
    tails = " and ".join(f"<b>{time(f.get(AT_RATE, 'p999_us', s))}</b> with {NAMES[s]}" for s in sides)
    held = rate(f.get(AT_RATE, "held_per_s" if "held_per_s" in f.runs(AT_RATE)[0] else "msgs_per_s"))
    return f"At {held} puts a second, one put in a thousand takes longer than {tails}.", svg.percentiles("latency", lines)


def _points(f: Figures, subject: str) -> list[tuple[float, float]]:
    """(share, µs) of the repetition whose p99.9 is the median; from its quantiles where it holds no distribution."""
    runs = sorted(f.runs(AT_RATE, subject), key=lambda run: float(run.get("p999_us", 0)))
    run = runs[len(runs) // 2]
    if found := run.get("latency"):
        return [(share, us) for share, us in found]
    return [(share, run[key]) for share, key in ((.5, "p50_us"), (.99, "p99_us"), (.999, "p999_us"), (.999999, "max_us"))
            if key in run]


def _over_time(f: Figures) -> tuple[str, str]:
    """A producer at full speed on each write path."""
    lines, texts, seconds = [], [], 0.05
    for case in f.cases(OVERTIME):
        run = f.runs(f"{OVERTIME}/{case}")[0]
        seconds = run["slice_ms"] / 1e3
        lines.append((case, [n / seconds for n in run["slices"]]))
        typical = statistics.median(run["slices"]) / seconds
        texts.append(f"{escape(case)}: {rate(typical)} puts a second, longest call <b>{time(run['max_us'])}</b>")
    return "; ".join(texts) + ".", svg.over_time("rate over time", lines, seconds, "puts of 1 KiB a second")


def _beside(f: Figures) -> tuple[str, str]:
    """This library, its peers, and the disk."""
    rows: list[tuple[str, float, float, float, bool]] = []
    for subject, case in BESIDE.items():
        try:
            values = f.all(case, "sustained_per_s", subject)
        except NotMeasured:
            continue
        rows.append((NAMES[subject], statistics.median(values), min(values), max(values), subject == OURS))
    answer = "; ".join(f"{escape(name)} <b>{rate(value)}</b>" for name, value, *_ in rows) + " messages a second."
    try:
        size = f.get(BESIDE[OURS], "record_bytes")
        disk = [v * (1 << 20) / size for v in f.all("stream/sustained", "mib_per_s", "fio")]
        rows.append(("the disk alone (fio), as such records", statistics.median(disk), min(disk), max(disk), False))
    except NotMeasured:
        pass
    rows.sort(key=lambda row: -row[1])
    return answer, svg.bars("rate beside peers and fio", rows, "/s")


QUESTIONS: tuple[tuple[str, str, Callable[[Figures], tuple[str, str]]], ...] = (
    ("How long does a put take while both stores carry the same load?",
     "1 KiB, asynchronous flush, both at 90 % of the rate that the slower one sustains. Latency counts from the moment a put "
     "was due. Further right are rarer puts; lower is better.", _latency),
    ("Does the rate hold, and how long are its pauses?",
     "One producer puts 1 KiB at full speed, each write path with its default memory. A dot on the axis is a slice of 50 ms "
     "without a put.", _over_time),
    ("How fast is it beside other stores, and beside the disk itself?",
     "Asynchronous puts of 1 KiB until all of them are on the device, on every side. The bar of fio is what the disk takes "
     "without a store. Longer is better.", _beside),
)


def _plot(number: int, question: str, how: str, make: Callable[[Figures], tuple[str, str]], f: Figures) -> str:
    try:
        answer, plot = make(f)
    except NotMeasured as why:
        answer, plot = f"Not measured: {escape(str(why))}.", ""
    return f'<h2>{number}. {escape(question)}</h2><p class="answer">{answer}</p><p class="note">{escape(how)}</p>{plot}'


def _rows(f: Figures, step: str) -> list[Sequence[str]]:
    """A row for each case and subject."""
    rows: list[Sequence[str]] = []
    for case in f.cases(step):
        name = f"{step}/{case}"
        for subject in f.subjects(name):
            runs = f.runs(name, subject)
            sustained = Column("", "sustained_per_s", rate)
            per_s = cell(f, name, sustained if "sustained_per_s" in runs[0] else DURABLE, subject)
            rows.append((case, NAMES.get(subject, subject), per_s, cell(f, name, CPU, subject), cell(f, name, TAIL, subject),
                         cell(f, name, WORST, subject), cell(f, name, Column("", "foreign", "{:.2f}".format), subject),
                         str(len(runs))))
    return rows


OWN_MAX = 9
HEAD = ("case", "who", "a second", "CPU ns a message", "p99.9", "worst", "foreign", "runs")


def _own(f: Figures, step: str) -> tuple[Sequence[str], list[Sequence[str]]]:
    """The same for a step whose figures are others: the first OWN_MAX that it names."""
    sides = [(case, s) for case in f.cases(step) for s in f.subjects(f"{step}/{case}")]
    keys = list(dict.fromkeys(k for case, s in sides for k, v in f.runs(f"{step}/{case}", s)[0].items()
                              if isinstance(v, (int, float))))[:OWN_MAX]
    return (("case", "who", *(k.replace("_", " ") for k in keys), "runs"),
            [(case, NAMES.get(s, s), *(cell(f, f"{step}/{case}", Column("", k, plain), s) for k in keys),
              str(len(f.runs(f"{step}/{case}", s)))) for case, s in sides])


def _step(f: Figures, name: str, found: dict[str, Any]) -> str:
    head: Sequence[str] = HEAD
    rows = _rows(f, name)
    if not any(row[3] != "–" and row[4] != "–" for row in rows):
        head, rows = _own(f, name)
    told = [f"<li>{escape(kind)}: {escape(what)}: {escape(why)}</li>" for kind in ("missing", "failed")
            for what, why in found[kind].items()]
    return (f"<details{' open' if name == 'beside' else ''}><summary>{escape(name)}: {escape(found['shows'])}</summary>"
            f'<p class="note">{escape(found["begin"])}, python -m {escape(" ".join(found["command"]))}</p>'
            f"{table(head, rows, 2)}{'<ul>' + ''.join(told) + '</ul>' if told else ''}</details>")


def _promises(document: Document) -> str:
    """What the project promised, judged on this run."""
    rows = [(o.text, targets.number(o.ours), targets.number(o.java), targets.number(o.value), o.target, o.words())
            for o in targets.judge(*targets.found(document["steps"]))]
    met = sum(row[-1] == "PASS" for row in rows)
    return (f"<details><summary>What was promised: {met} of {len(rows)} lines met</summary>"
            + table(("", "rmq_store", "RocketMQ", "measured", "target", ""), rows, 1, {"PASS": "pass", "short of": "miss"})
            + "</details>")


def html(document: Document) -> str:
    """The page, whole: it loads nothing from anywhere."""
    f, about = Figures(document), document["machine"]
    title = "How fast is rmq_store?"
    parts = [f"<h1>{title}</h1>"]
    if document["quick"]:
        parts.append('<p class="warn">A quick run: it shows that everything runs. The figures mean nothing.</p>')
    parts.append(f'<p class="lead">Commit {escape(document["commit"][:12])}, measured from {escape(str(document["begin"]))} to '
                 f'{escape(str(document["end"]))} on {escape(str(about["cpu"]))}, {about["cpus"]} cores, Linux '
                 f'{escape(document["kernel"])}, {escape(str(about["file_system"]["type"]))}. Three questions:</p><ol>')
    parts += [f"<li>{escape(question)}</li>" for question, _, _ in QUESTIONS]
    parts.append("</ol>")
    parts += [_plot(i, question, how, make, f) for i, (question, how, make) in enumerate(QUESTIONS, 1)]
    if not document["quick"]:
        parts.append("<h2>Promises</h2>" + _promises(document))
    parts.append('<h2>Every case</h2><p class="note">Medians of the runs. A rate counts until all is flushed and dispatched; '
                 "of durable puts it is that of the calls. CPU is the processor time of all threads. <i>foreign</i> is the "
                 "share of all processors that others used; above 0.15 a run was disturbed.</p>")
    parts += [_step(f, name, found) for name, found in document["steps"].items()]
    if document["absent"]:
        parts.append("<h3>Steps without figures</h3><ul>" + "".join(
            f"<li>{escape(name)}: {escape(why)}</li>" for name, why in document["absent"].items()) + "</ul>")
    parts.append("<h2>Measured on</h2>" + facts("Machine", about) + facts("Peers", document["peers"]))
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{title}</title><style>{STYLE}{OWN}</style></head><body>{''.join(parts)}</body></html>\n")
