"""The status page of a broker: one HTML text that needs nothing from anywhere else.

Every name and every byte that came from a client passes `_text`, which escapes it; the page's policy (POLICY) forbids any other
script, style or address. The script asks for the page again every two seconds and puts the new content in the place of the old;
without scripts the page is whole, and stands still. Pure functions; any thread.
"""
import base64
import hashlib
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

from rmq_store.access.reader._message import Message
from rmq_store.broker.core import Core
from rmq_store.broker.figures import Figures, Moment, count_text, size_text, time_text
from rmq_store.broker.topics import Topic
from rmq_store.codec.layout import time_text as clock_text
from rmq_store.errors import CorruptionError
from rmq_store.events import printable
from rmq_store.services.consumer.progress import Lag

__all__ = ["POLICY", "page"]

TOPICS_MAX = GROUPS_MAX = 200       # rows of a table; the rest is counted
QUEUES_MAX = 64                     # of one topic
MESSAGES_MAX = 20
LOOKED_MAX = 400                    # messages that are read for that
BODY_MAX = 96                       # bytes of a body that are shown
NAME_MAX = 255                      # characters of any text

STYLE = """
:root{color-scheme:light dark;--back:#fff;--fore:#1b1f24;--soft:#59636e;--line:#d8dee4;--card:#f6f8fa;
--in:#0969da;--out:#1a7f37}
@media(prefers-color-scheme:dark){:root{--back:#0d1117;--fore:#e6edf3;--soft:#9198a1;--line:#30363d;--card:#161b22;--in:#58a6ff;
--out:#3fb950}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:76rem;padding:1rem 1.5rem 3rem;background:var(--back);color:var(--fore);
font:15px/1.45 system-ui,sans-serif}
h1{font-size:1.35rem;margin:.4rem 0}h2{font-size:1.05rem;margin:1.8rem 0 .5rem}
p{margin:.2rem 0;color:var(--soft)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.6rem;margin:1rem 0}
.card{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.6rem .8rem}
.card b{display:block;font-size:1.25rem;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.card span{color:var(--soft);font-size:.85rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.25rem .7rem .25rem 0;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--soft);font-weight:500;font-size:.85rem}
td{overflow-wrap:break-word}
td:not(:last-child){max-width:24rem}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;overflow-wrap:normal}
code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}
time{white-space:nowrap}
details>summary{cursor:pointer}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--soft);font-size:11px}
.in{stroke:var(--in);fill:none;stroke-width:2}.out{stroke:var(--out);fill:none;stroke-width:2}
.bar{fill:var(--in)}.axis{stroke:var(--line)}
.ti{color:var(--in)}.to{color:var(--out)}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(22rem,1fr));gap:1rem}
"""

SCRIPT = """
const every=2000;
async function renew(){
 try{
  if(!document.hidden){
   const answer=await fetch(location.pathname,{cache:'no-store'});
   if(!answer.ok)throw new Error(answer.status);
   const next=new DOMParser().parseFromString(await answer.text(),'text/html').getElementById('live');
   const open=new Set([...document.querySelectorAll('details[open]')].map(d=>d.id));
   for(const d of next.querySelectorAll('details'))if(open.has(d.id))d.open=true;
   document.getElementById('live').replaceWith(next);
   document.body.dataset.renewed=Number(document.body.dataset.renewed)+1;
  }
  document.getElementById('state').textContent='';
 }catch(error){document.getElementById('state').textContent='The broker does not answer: '+error.message;}
 setTimeout(renew,every);
}
document.body.dataset.renewed=0;
setTimeout(renew,every);
"""


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


POLICY = (f"default-src 'none'; script-src {_hash(SCRIPT)}; style-src {_hash(STYLE)}; connect-src 'self'; img-src data:; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")


def _text(value: object) -> str:
    """Whatever it is, as text of the page."""
    text = str(value)
    return escape(printable(text if len(text) <= NAME_MAX else text[:NAME_MAX] + "…"))


def page(core: Core, figures: Figures, *, contents: bool) -> str:
    """The page: str. contents: whether it shows the last messages. Raises StoreStateError when the store is closed."""
    lags, topics = figures.lags(), core.topics.snapshot()
    live = [_head(core), _cards(core, figures), _rates(list(figures.moments)), _replication(core),
            _topics(core, topics.values()),
            _groups(core, lags), _messages(core, topics.values()) if contents else
            "<h2>Last messages</h2><p>aclEnable is on: this page has no accounts, so it shows no messages.</p>",
            _histograms(core), _requests(core)]
    name = _text(core.options["brokerName"])
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}: rmq_store</title>'
            f'<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"><style>{STYLE}</style></head>'
            f'<body><p id="state" role="status"></p><main id="live">{"".join(live)}</main><script>{SCRIPT}</script></body>'
            "</html>")


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers: frozenset[int]) -> str:
    """rows: cells that are HTML already. numbers: columns that stand to the right."""
    def cells(row: Sequence[object], kind: str) -> str:
        return "".join(f'<{kind}{" class=n" if i in numbers else ""}>{cell}</{kind}>' for i, cell in enumerate(row))

    return (f'<div class="wide"><table><thead><tr>{cells(head, "th")}</tr></thead><tbody>'
            + "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows) + "</tbody></table></div>")


def _more(count: int, most: int, what: str) -> str:
    return f"<p>{count - most:,} more {what} are not shown.</p>" if count > most else ""


# ---- parts

def _head(core: Core) -> str:
    seconds = max(int(time.time() - core.started_ms / 1000), 0)
    minutes = seconds // 60
    up = f"{minutes // 1440} d {minutes // 60 % 24} h {minutes % 60} min" if minutes else f"{seconds} s"
    role = {"master": "master", "sync_master": "synchronous master", "slave": "slave"}[core.store.options.role]
    return (f"<h1>{_text(core.options['brokerName'])} in {_text(core.options['brokerClusterName'])}</h1>"
            f"<p>{role} {core.broker_id} at {_text(core.address)}, rules of RocketMQ {'5.3.3' if core.modern else '4.9.8'}, "
            f"up {up}, store {_text(core.store.path)}</p>")


def _cards(core: Core, figures: Figures) -> str:
    stats: Any = core.store.stats()
    now = figures.moments[-1] if figures.moments else None
    cards = [] if now is None else [
        (f"{count_text(now.puts)}/s", "messages in"), (f"{count_text(now.got)}/s", "messages out"),
        (f"{size_text(now.put_bytes)}/s", "bytes in"), (f"{size_text(now.got_bytes)}/s", "bytes out"),
        (f"{now.connections:,}", "connections"), (f"{now.held:,}", "held pulls"),
        (f"{sum(now.behind.values()):,}", "messages behind")]
    cards += [(size_text(stats["wrote"] - stats["min_log_offset"]), "log"),
              (size_text(stats["wrote"] - stats["flushed"]), "not on the device yet"),
              (size_text(stats["dispatch_behind_bytes"]), "not dispatched yet")]
    if stats["errno"] or stats["disk_full"]:
        cards.append(("disk full" if stats["disk_full"] else "failed", "the store refuses messages"))
    return ('<div class="cards">'
            + "".join(f'<div class="card"><b>{value}</b><span>{what}</span></div>' for value, what in cards) + "</div>")


def _rates(moments: Sequence[Moment]) -> str:
    top = max((max(m.puts, m.got) for m in moments), default=0.0)
    if len(moments) < 2 or top <= 0:
        return ""
    width, height, end = 1000, 150, moments[-1].at
    span = max(end - moments[0].at, 1.0)

    def path(values: Iterable[float]) -> str:
        return "M" + "L".join(f"{width * (1 - (end - m.at) / span):.1f} {height - (height - 16) * v / top:.1f}"
                              for m, v in zip(moments, values, strict=True))

    return (f'<h2>Messages a second, <span class="ti">in</span> and <span class="to">out</span>, last {span:.0f} s</h2>'
            f'<svg viewBox="0 0 {width} {height + 2}" role="img" aria-label="messages a second, in and out">'
            f'<path class="axis" d="M0 {height}H{width}M0 16H{width}"/><text x="0" y="12">{count_text(top)}/s</text>'
            f'<path class="in" d="{path(m.puts for m in moments)}"/>'
            f'<path class="out" d="{path(m.got for m in moments)}"/></svg>')


def _replication(core: Core) -> str:
    """Nothing of a store that takes part in none."""
    state = core.store.replication()
    if state.role == "slave":
        known, end = state.master_offset, core.store.max_log_offset
        copied = "never" if state.copied_ms is None else clock_text(state.copied_ms)
        rows = [(_text(state.master or "not known yet"), _text(state.state), f"{end:,}", "" if known is None else f"{known:,}",
                 "" if known is None else size_text(max(known - end, 0)), _text(copied))]
        return "<h2>Slave</h2>" + _table(("master", "state", "log ends at", "master's log ends at", "behind",
                                          "metadata copied"), rows,
                                         frozenset((2, 3, 4)))
    if state.address is None:
        return ""
    slaves = [(_text(r.address), f"{r.offset:,}", size_text(r.lag_bytes), f"{r.lag_ms:,} ms", size_text(r.sent_bytes))
            for r in core.store.replicas()[:GROUPS_MAX]]
    return (f"<h2>Slaves of this {'synchronous ' if state.role == 'sync_master' else ''}master, {_text(state.address)}</h2>"
            + _table(("slave", "acknowledged offset", "behind", "for", "sent"), slaves, frozenset((1, 2, 3, 4))))


def _busiest(core: Core, topics: Iterable[Topic]) -> tuple[list[Topic], dict[str, tuple[int, int]]]:
    """Topics by how much was put into them since the store opened."""
    counts = core.store.topic_counts()
    return sorted(topics, key=lambda topic: (-counts.get(topic.name, (0, 0))[0], topic.name)), counts


def _topics(core: Core, topics: Iterable[Topic]) -> str:
    ordered, counts = _busiest(core, topics)
    rows = []
    for topic in ordered[:TOPICS_MAX]:
        queues = core.store._queues_of(topic.name)
        perm = "".join(letter if topic.perm & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))
        item = core.store.stats_item("TOPIC_PUT_NUMS", topic.name)
        put, size = counts.get(topic.name, (0, 0))
        rows.append((_queues(topic, queues), perm, f"{topic.read} / {topic.write}",
                     f"{sum(high - low for _, low, high in queues):,}", f"{put:,}", size_text(size),
                     f"{count_text(item['statsMinute']['tps'])}/s" if item is not None else ""))
    return ("<h2>Topics</h2>" + _table(("topic", "perm", "queues read / write", "messages", "put since the start", "bytes",
                                        "last minute"), rows, frozenset((2, 3, 4, 5, 6)))
            + _more(len(ordered), TOPICS_MAX, "topics"))


def _queues(topic: Topic, queues: Sequence[tuple[int, int, int]]) -> str:
    if not queues:
        return _text(topic.name)
    rows = [(queue, f"{low:,}", f"{high:,}", f"{high - low:,}") for queue, low, high in queues[:QUEUES_MAX]]
    return (f'<details id="q:{_text(topic.name)}"><summary>{_text(topic.name)}</summary>'
            + _table(("queue", "first", "end", "messages"), rows, frozenset(range(4)))
            + _more(len(queues), QUEUES_MAX, "queues") + "</details>")


def _groups(core: Core, lags: Iterable[Lag]) -> str:
    by_group: dict[str, dict[str, list[Lag]]] = {}
    for row in lags:
        by_group.setdefault(row.group, {}).setdefault(row.topic, []).append(row)
    connected = core.clients.counts()[1]
    behind = {group: sum(row.behind for rows in topics.values() for row in rows) for group, topics in by_group.items()}
    names = sorted({*by_group, *connected}, key=lambda name: (-behind.get(name, 0), name))
    rows = [(_positions(name, by_group.get(name, {})), f"{connected.get(name, 0):,}",
             _text(", ".join(by_group.get(name, {}))), f"{behind.get(name, 0):,}") for name in names[:GROUPS_MAX]]
    return ("<h2>Groups</h2>" + _table(("group", "connections", "topics with offsets", "behind"), rows, frozenset((1, 3)))
            + _more(len(names), GROUPS_MAX, "groups"))


def _positions(group: str, topics: dict[str, list[Lag]]) -> str:
    rows = [(_text(topic), row.queue_id, f"{row.offset:,}", f"{row.max_offset:,}", f"{row.behind:,}")
            for topic, found in topics.items() for row in found]
    if not rows:
        return _text(group)
    return (f'<details id="g:{_text(group)}"><summary>{_text(group)}</summary>'
            + _table(("topic", "queue", "offset", "end", "behind"), rows[:QUEUES_MAX], frozenset(range(1, 5)))
            + _more(len(rows), QUEUES_MAX, "queues") + "</details>")


def _messages(core: Core, topics: Iterable[Topic]) -> str:
    """The newest messages of the busiest topics. They are read past the counters of gets."""
    store, found = core.store, []
    for name, queue, offset in itertools.islice(_last(core, topics), LOOKED_MAX):
        try:
            entry = store.raw_entry(name, queue, offset)
            message = store.message_at(entry[0]) if entry is not None else None
        except CorruptionError:         # verify tells of it
            continue
        if message is not None:
            found.append(message)
    found.sort(key=lambda m: m.offset, reverse=True)
    rows = [(f"<time>{clock_text(m.store_timestamp)}</time>", _text(m.topic), m.queue_id, f"{m.queue_offset:,}",
             _text(m.tags or ""), _text(m.keys or ""), size_text(len(m.body)),
             f"<code>{_body(m)}</code>") for m in found[:MESSAGES_MAX]]
    return "<h2>Last messages</h2>" + _table(("stored", "topic", "queue", "offset", "tags", "keys", "size", "body"), rows,
                                             frozenset((2, 3, 6)))


def _last(core: Core, topics: Iterable[Topic]) -> Iterator[tuple[str, int, int]]:
    """(topic, queue, offset) of the last messages of each queue, beginning with the busiest topic."""
    for topic in _busiest(core, topics)[0]:
        for queue, low, high in core.store._queues_of(topic.name):
            for offset in range(high - 1, max(low, high - MESSAGES_MAX) - 1, -1):
                yield topic.name, queue, offset


def _body(message: Message) -> str:
    start = bytes(message.body[:BODY_MAX])
    more = "…" if len(message.body) > BODY_MAX else ""
    try:
        text = start.decode(errors="strict" if not more else "ignore")
        if sum(not c.isprintable() for c in text) <= len(text) // 8:
            return _text(text) + more
    except UnicodeDecodeError:
        pass
    return start[:BODY_MAX // 3].hex(" ") + ("…" if len(message.body) > BODY_MAX // 3 else "")


# ---- durations

_DURATIONS = (("flush", "Flush to the device"), ("commit", "Commit from the pool to the file"),
              ("lock", "Pause of a put: it waited for the put lock"), ("append", "Pause of others: a put held the put lock"),
              ("dispatch_lag", "From a put until consumers see it"), ("get", "Get"))


def _histograms(core: Core) -> str:
    found = core.store.histograms()
    return ('<h2>Durations since the start</h2><div class="pair">'
            + "".join(_histogram(title, found[name]) for name, title in _DURATIONS) + "</div>")


def _histogram(title: str, histogram: Any) -> str:
    """One bar for each factor of two; the height is the share of all."""
    bars: dict[int, int] = {}
    for low, _, count in histogram.buckets():
        bars[max(int(low), 1).bit_length()] = bars.get(max(int(low), 1).bit_length(), 0) + count
    said = (f"{histogram.count:,} times, p50 {time_text(histogram.quantile(.5))}, p99 {time_text(histogram.quantile(.99))}, "
            f"longest {time_text(histogram.highest)}") if histogram.count else "none yet"
    drawn = ""
    if bars:
        first, last, most = min(bars), max(bars), max(bars.values())
        step = min(500 / (last - first + 1), 60)
        drawn = "".join(f'<rect class="bar" x="{step * (bit - first):.1f}" y="{90 - 88 * count / most:.1f}" '
                        f'width="{step * .9:.1f}" height="{88 * count / most:.1f}"><title>{time_text(2 ** (bit - 1))} to '
                        f'{time_text(2 ** bit)}: {count:,}</title></rect>' for bit, count in sorted(bars.items()))
        drawn += (f'<path class="axis" d="M0 90H500"/><text x="0" y="104">{time_text(2 ** (first - 1))}</text>'
                  f'<text x="{step * (last - first + 1):.1f}" y="104" text-anchor="end">{time_text(2 ** last)}</text>'
                  if last > first else f'<text x="0" y="104">{time_text(2 ** (first - 1))}</text>')
    return (f'<figure class="card"><figcaption>{title}<br><span>{said}</span></figcaption>'
            f'<svg viewBox="0 0 500 108" role="img" aria-label="{title}: {said}">{drawn}</svg></figure>')


def _requests(core: Core) -> str:
    counts = core.processors.counts()
    rows = [("others" if code < 0 else str(code), f"{count:,}")
            for code, count in sorted(counts.items(), key=lambda row: -row[1]) if count]
    return "<h2>Requests by code</h2>" + _table(("code", "requests"), rows, frozenset((1,)))
