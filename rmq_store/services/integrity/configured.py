"""Verification of the files under config/. Reads only; beside a writer, too, which replaces each of them by a rename."""
from collections.abc import Iterator

from rmq_store.base.io.files import ControlFiles
from rmq_store.config.load import Options
from rmq_store.config.recorded import recorded_path, unusable
from rmq_store.errors import CorruptionError
from rmq_store.services.consumer.config_file import BROKER_CHANGES, ConfigFile, taken_changes
from rmq_store.services.consumer.filters import open_filters
from rmq_store.services.consumer.room import Consuming
from rmq_store.services.delay.service import delay_offsets
from rmq_store.services.integrity.findings import SEVERITY, Finding

__all__ = ["config_findings"]


def config_findings(files: ControlFiles, root: str, options: Options) -> Iterator[Finding]:
    """Files under config/ of which neither the file nor its .bak can be read."""
    if what := unusable(root):
        yield Finding("config_file", SEVERITY["config_file"], recorded_path(root), found=what,
                      detail=f"{what}: an open for writing refuses it")
    tables = Consuming(files, root, options.compat, True, lambda: None, lambda: open_filters(files, root, options),
                       light=options.enable_lmq)
    for read in (lambda: delay_offsets(files, root), lambda: tables.offsets, lambda: tables.groups, lambda: tables.topics,
                 lambda: tables.filters, lambda: ConfigFile(files, root, BROKER_CHANGES).load(taken_changes)):
        try:
            read()
        except CorruptionError as error:
            yield Finding("config_file", SEVERITY["config_file"], str(error.path), expected=error.expected, found=error.found,
                          detail=f"{error.found}, and its .bak file is unreadable too: {error.cure}")
