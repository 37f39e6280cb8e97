"""`rmqstore spark`: the jobs of rmq_store.spark from the command line, on a local session or any master.

Control plane, the main thread only. Results go to standard output, as JSON lines under --json.
"""
import argparse
import dataclasses
import errno
import sys
import warnings
from typing import Any

from rmq_store.cli.exits import CORRUPT, FINDINGS, FINE
from rmq_store.cli.output import Output
from rmq_store.cli.verify import show
from rmq_store.errors import ConfigError, RmqStoreError

JOBS = {
    "audit": "check every record and checksum, and that the log, queues, index and manifests agree",
    "rebuild-queues": "make the consume queues from the log",
    "rebuild-index": "make the index files from the log",
    "export": "write messages as Parquet files with a manifest; a later run adds new messages",
    "statistics": "messages and bytes by broker, topic and queue",
    "keys": "the keys with the most messages",
    "retention": "how much a store would keep for given retention hours",
    "diff": "messages that differ between two stores",
    "replay": "copy messages into another store",
    "merge": "copy the messages of several stores into one",
    "compact": "copy the newest message of each key into another store",
    "query": "run SQL over the view `messages`",
}
# What a rebuild takes from the files that are there, and RocketMQ's defaults where there is none.
SIZES = {
    "rebuild-queues": {"--split-size": "bytes of the log that one task reads", "--file-size": "size of a queue file in bytes"},
    "rebuild-index": {"--split-size": "bytes of the log that one task reads", "--slots": "number of slots of an index file",
                      "--entries": "number of entries of an index file"},
}
TWO = ("export", "diff", "replay", "merge", "compact")


def arguments(parser: argparse.ArgumentParser) -> None:
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    for name, what in JOBS.items():
        job = jobs.add_parser(name, help=what, description=what[:1].upper() + what[1:] + ".")
        job.add_argument("store", metavar="STORE", help="root directory of a store, a comma list, a glob, or JSON {name: root}")
        if name in TWO:
            job.add_argument("target", metavar="TARGET", help="directory for the result, or the other store")
        if name == "query":
            job.add_argument("sql", metavar="SQL", help="for example: SELECT topic, count(*) FROM messages GROUP BY 1")
        if name == "audit":
            job.add_argument("--log-only", action="store_true", help="leave out queues, index and manifests")
        if name.startswith("rebuild"):
            job.add_argument("--install", action="store_true", help="install the files in the store, under its lock")
            job.add_argument("--commitlog-path", metavar="PATHS", help="directories of the commit log with commas between "
                             "them, if it is not in the store's directory, or in several")
            for option, what in SIZES[name].items():
                job.add_argument(option, type=int, metavar="N", help=what)
        if name == "retention":
            job.add_argument("--hours", default="24,48,72,168", help="retention hours, as a comma list (default %(default)s)")
        if name in ("replay", "merge", "compact"):
            job.add_argument("--txn", required=True, metavar="NAME[:VERSION]", help="name and version of this run; a repeated "
                             "run with the same name and version does nothing")
        if name in ("replay", "merge"):
            job.add_argument("--shards", type=int, metavar="N", help="make up to N new stores under TARGET in parallel")
        if name not in SIZES:
            job.add_argument("-o", "--option", action="append", default=[], metavar="NAME=VALUE", dest="options",
                             help="an option of the read (docs/spark.md), or store.NAME for an option of the written or "
                             "audited store (docs/options.md); may be repeated")
        job.add_argument("--master", help="Spark master (default: local[*]; under spark-submit its own master)")
        job.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a Spark setting; may be repeated")
        job.add_argument("--json", action="store_true", help="JSON lines instead of text")
        job.add_argument("-v", "--verbose", action="store_true", help="also log each step, to standard error")


def run(args: argparse.Namespace, out: Output) -> int:
    from rmq_store.spark import SparkUnavailable, local_session

    options = pairs(getattr(args, "options", []))
    try:
        session = local_session("rmqstore spark " + args.job, args.master, **pairs(args.conf))
    except SparkUnavailable as error:
        raise OSError(errno.ENOPKG, str(error)) from error
    session.sparkContext.setLogLevel("ERROR")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print(f"rmqstore spark: {message}", file=sys.stderr)
            return _job(session, args, out, options)
    except Exception as error:
        plain = _plain(error)
        if plain is error:
            raise
        raise plain from error
    finally:
        session.stop()


def _plain(error: Exception) -> Exception:
    """An error as one sentence, where it comes out of Spark."""
    from pyspark.errors import AnalysisException, PySparkException

    from rmq_store.spark.told import said, told

    if not isinstance(error, PySparkException):
        return error
    return told(error) or (ConfigError if isinstance(error, AnalysisException) else RmqStoreError)(f"Spark: {said(error)}")


def pairs(texts: list[str]) -> dict[str, str]:
    """NAME=VALUE arguments as a mapping."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"{text}: expected NAME=VALUE")
        found[name] = value
    return found


def _job(session: Any, args: argparse.Namespace, out: Output, options: dict[str, Any]) -> int:
    from rmq_store.spark import jobs, scan

    job, store = args.job, args.store
    to = {name[6:]: value for name, value in options.items() if name.startswith("store.")}
    options = {name: value for name, value in options.items() if not name.startswith("store.")}
    if job == "audit":
        report = jobs.audit(session, store, not args.log_only, to, **options)
        for finding in report.findings:
            show(finding, out)
        _show(out, {"files": report.files, "records": report.records, "bytes": report.bytes, "findings": len(report.findings)})
        severities = {finding.severity for finding in report.findings}
        return CORRUPT if "corrupt" in severities else FINDINGS if "finding" in severities else FINE
    if job in SIZES:
        make = jobs.rebuild_queues if job == "rebuild-queues" else jobs.rebuild_index
        sizes = {name: getattr(args, name) for name in (option[2:].replace("-", "_") for option in SIZES[job])}
        made = make(session, store, args.install, commitlog_path=args.commitlog_path,
                    **{name: value for name, value in sizes.items() if value is not None})
        _show(out, dataclasses.asdict(made))
        return FINE
    if job == "export":
        _show(out, dataclasses.asdict(jobs.export(session, store, args.target, **options)))
        return FINE
    if job in ("replay", "merge", "compact"):
        app, _, version = args.txn.partition(":")
        if job != "compact":
            options["shards"] = args.shards
        getattr(jobs, job)(session, store, args.target, app, int(version or 0), to, **options)
        return FINE
    if job == "diff":
        found = _rows(out, jobs.diff(session, store, args.target, **options))
        return FINDINGS if found else FINE
    if job == "query":
        scan(session, store, **options).createOrReplaceTempView("messages")
        _rows(out, session.sql(args.sql))
    elif job == "retention":
        _rows(out, jobs.retention(session, store, tuple(int(h) for h in args.hours.split(",")), **options))
    else:
        _rows(out, (jobs.topic_statistics if job == "statistics" else jobs.key_statistics)(session, store, **options))
    return FINE


def _show(out: Output, fields: dict[str, Any]) -> None:
    if out.as_json:
        out.record(fields)
    else:
        out.line("  ".join(f"{name} {value}" for name, value in fields.items()))


def _rows(out: Output, df: Any) -> int:
    """Prints a DataFrame's rows as they come; returns how many."""
    rows = [tuple(row) for row in df.collect()] if not out.as_json else []
    if not out.as_json:
        out.table(tuple(df.columns), rows)
        return len(rows)
    count = 0
    for row in df.toLocalIterator():
        out.record(row.asDict())
        count += 1
    return count
