"""Faults that the sink once had, planted again in the worker, so that its model is known to see them (test_model_sink.py)."""
import os

from rmq_store import MessageStore
from rmq_store.spark import resume, shards, staging

__all__ = ["PLANTS", "plant"]


def batches_known_by_number_alone():
    def is_done(root, app, version, query, rows):
        done = staging.last_done(root, app)
        return done is not None and version <= done

    staging.is_done = is_done


def paths_as_they_were_called():
    def located(root, path):
        return path

    staging.located = located
    staging.below = lambda path: path
    staging._with_paths = lambda entry, change: dict(entry)


def the_log_below_the_root():
    files = resume.log_files_in
    resume.log_files_in = lambda directory: files(os.path.join(os.path.dirname(directory), "commitlog"))


def cleaned_records_never_stored():
    def present(store, staged, begin):
        return resume._run(resume._records_from(store, begin), staged())

    staging.present = present


def a_second_crash_counts_from_the_first():
    write = staging.write_journal

    def write_journal(path, entry):
        if not entry.get("skip"):
            write(path, entry)

    staging.write_journal = write_journal


def done_before_the_pool_is_written():
    MessageStore._commit = lambda store: None


def stores_and_bulk_loads_mixed():
    staging.refuse_bulk = lambda root: None
    shards.check_root = lambda root: None


def an_abort_of_what_is_decided():
    staging._pending_jobs = lambda root: set()


PLANTS = {f.__name__: f for f in (
    batches_known_by_number_alone, paths_as_they_were_called, the_log_below_the_root, cleaned_records_never_stored,
    a_second_crash_counts_from_the_first, done_before_the_pool_is_written, stores_and_bulk_loads_mixed,
    an_abort_of_what_is_decided)}


def plant(name):
    if name is not None:
        PLANTS[name]()
