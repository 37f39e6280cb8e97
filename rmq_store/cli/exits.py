"""The exit codes of `rmqstore`: what each means, and when a command ends with it. The one place that says so.

--help, docs/commands.md and docs/reference/commands.md take their words from here; tests/cli/test_exits.py runs every line of
EXITS. Imports nothing.
"""
FINE, FINDINGS, REFUSED, CANNOT_OPEN, CORRUPT, USAGE, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 3, 4, 64, 130, 141

MEANINGS = {
    FINE: "the command did its work and found no problem",
    FINDINGS: "the command has findings, or found nothing that was asked for, or the store refused a message",
    REFUSED: "the store refuses to load: a commit-log file has the wrong size, or the log has a gap",
    CANNOT_OPEN: "the command cannot open, read or write a store or a file: the path holds no store, another process has the "
    "store open for writing, or the kernel refuses",
    CORRUPT: "data is corrupt: the log, or a file that the command needs",
    USAGE: "the command line, an option or an input is wrong",
    INTERRUPTED: "the user interrupted the command with Ctrl-C",
    PIPE_CLOSED: "the reader of standard output has gone",
}
EVERY = (USAGE, INTERRUPTED, PIPE_CLOSED)      # of every command

_NO_STORE = MEANINGS[CANNOT_OPEN]
_NO_STORE_TO_READ = "the path holds no store, or the kernel refuses to open or read a file"
_REFUSED = MEANINGS[REFUSED]
_SIZES = "a queue file or an index file has the wrong size"
_OPENED = {REFUSED: _REFUSED, CANNOT_OPEN: _NO_STORE, CORRUPT: _SIZES}          # of a command that writes a store
_READ = {**_OPENED, CANNOT_OPEN: _NO_STORE_TO_READ}
_TABLES = f"{_SIZES}, or a JSON file under config/ and its .bak file are unreadable"
_LOG = "the log of the store that is read has damage in the middle; messages before the damage were processed"

# command -> exit code -> when. The codes of EVERY are left out.
EXITS: dict[str, dict[int, str]] = {
    "demo": {FINE: "the demo ended",
             CANNOT_OPEN: "the directory exists already, or the kernel refuses to make it or to write to it"},
    "put": {FINE: "all messages are stored and on the device",
            FINDINGS: "the store refused a message, or a message was not on the device in time", **_OPENED,
            CANNOT_OPEN: "the input or the store cannot be opened, or another process has the store open for writing, or a "
            "write or a sync failed"},
    "get": {FINE: "the command showed a message", FINDINGS: "the topic or the queue has no such message", **_READ},
    "tail": {FINE: "the command showed --count messages, or the time of --for is over", **_READ,
             CANNOT_OPEN: f"{_NO_STORE_TO_READ}, or the log of the store ends before its queues do"},
    "table": {FINE: "the command showed a key", FINDINGS: "the topic has no such key, or no key with a value", **_READ,
              CANNOT_OPEN: f"{_NO_STORE_TO_READ}, or the topic has more keys than --keys-max", CORRUPT: _TABLES},
    "query": {FINE: "the command found a message", FINDINGS: "the command found no message", **_READ},
    "stat": {FINE: "the store was closed cleanly, or it is open; or --watch ended", FINDINGS: "the store needs recovery, which "
             "the next open for writing does; or files of the log are missing; or the topic of --topic has no queue", **_READ},
    "offsets": {FINE: "the command showed or moved an offset", FINDINGS: "show and lag: there is no offset to show; "
                "commit: the queue has no message", **_OPENED,
                CORRUPT: _TABLES},
    "topics": {FINE: "the command did its work", FINDINGS: "list: there is no topic to show; delete: a topic does not exist; "
               "delete, unused and expired: a queue was kept; compact: the topic is not a compaction topic",
               **_OPENED, CORRUPT: _TABLES},
    "groups": {FINE: "the command did its work", FINDINGS: "list: there is no group to show; delete: the group does not "
               "exist", **_OPENED, CORRUPT: _TABLES},
    "filters": {FINE: "the command did its work", FINDINGS: "list: there is no filter to show; delete: the group has none",
                **_OPENED, CORRUPT: _TABLES},
    "transactions": {FINE: "the command listed the pending transactions, or decided those that were named",
                     FINDINGS: "there is no transaction of that id, or it was decided differently before", **_OPENED,
                     CORRUPT: _TABLES},
    "timers": {FINE: "the command listed the timer messages that wait, or took those back that were named",
               FINDINGS: "the message of a handle was due already", **_OPENED,
               CORRUPT: "config/timercheck, a queue file or an index file has the wrong size"},
    "clean": {FINE: "the files that are old enough are deleted, or there is none", **_OPENED},
    "dump": {FINE: "all bytes that the command showed are sound", FINDINGS: "a record, an entry or a field is wrong",
             CANNOT_OPEN: "a file cannot be opened or read; the command shows the other files"},
    "doctor": {FINE: "there is nothing to do", FINDINGS: "there is something to do",
               CANNOT_OPEN: "the path is a file, or the kernel refuses to read the directory"},
    "advise": {FINE: "the command proposes a profile",
               CANNOT_OPEN: "the path is a file, or the kernel refuses to write to the directory"},
    "config": {FINE: "the command printed its list", CANNOT_OPEN: "the kernel refuses to read a file"},
    "bench": {FINE: "no run failed, and at least one run was measured", FINDINGS: "a run failed",
              CANNOT_OPEN: "no run was possible: every case was skipped with a reason, or the kernel refuses to write to a "
              "directory"},
    "verify": {FINE: "nothing is wrong, or there are only notes", FINDINGS: "queues, index, manifests or files under config/ "
               "do not agree with the log", CANNOT_OPEN: _NO_STORE_TO_READ, CORRUPT: "the log is damaged"},
    "scrub": {FINE: "all sealed files agree with their manifests, or there are only notes",
              FINDINGS: "a manifest is unreadable", CANNOT_OPEN: _NO_STORE_TO_READ,
              CORRUPT: "a sealed file does not agree with its manifest, or the log is damaged"},
    "repair": {FINE: "there was nothing to repair, or nothing is wrong any more",
               FINDINGS: "--dry-run: there are steps to take; otherwise: a finding outside of the log is left",
               REFUSED: "the store does not load after the repair either, because commit-log files are missing",
               CANNOT_OPEN: _NO_STORE, CORRUPT: "damage of the log is left that no repair can bridge"},
    "copy": {FINE: "all messages are copied and on the device", FINDINGS: "a topic of --topic has no message, or cleaning "
             "deleted a part of FROM before it was copied", **_OPENED, CORRUPT: _LOG},
    "export": {FINE: "all messages are exported", FINDINGS: "a topic of --topic has no message, or cleaning deleted a part of "
               "the log before it was exported", **_READ, CORRUPT: _LOG},
    "import": {FINE: "all messages are stored and on the device", **_OPENED,
               CANNOT_OPEN: "the input or the store cannot be opened, or another process has the store open for writing, or a "
               "write or a sync failed"},
    "backup": {FINE: "the backup is made", **_READ, CANNOT_OPEN: "the path holds no store, or DIR holds something else or "
               "backups of another store, or the kernel refuses to read the store or to write to DIR",
               CORRUPT: f"{_SIZES}, or the log is damaged"},
    "restore": {FINE: "the command restored, listed or checked a backup", FINDINGS: "the directory holds no backup",
                CANNOT_OPEN: "the path holds no directory of backups, or TO is not empty, or the kernel refuses to read "
                "the backup or to write TO", CORRUPT: "a file of the backup is damaged"},
    "namesrv": {FINE: "SIGTERM ended the server", CANNOT_OPEN: "the address cannot be listened on, or the ready file cannot be "
                "written"},
    "serve": {FINE: "SIGTERM ended the broker, and the store is closed", **_OPENED, CORRUPT: _TABLES,
              CANNOT_OPEN: "an address cannot be listened on, the ready file cannot be written, another process has the store "
              "open for writing, or the kernel refuses"},
    "follow": {FINE: "SIGTERM ended the command, and the store is closed", **_OPENED,
               CANNOT_OPEN: f"{_NO_STORE}, or the store was promoted to a master, or a write or a sync failed",
               CORRUPT: f"{_SIZES}, or the log of the store and the master's log differ"},
    "promote": {FINE: "the directory is a master's", **_OPENED, CANNOT_OPEN: "the directory is not a slave's, or the old "
                "master still "
                "answers, or the path holds no store, or a process has it open",
                CORRUPT: f"{_SIZES}, or a file under config/ that the command needs is unreadable"},
    "spark": {FINE: "the job ended, and audit and diff found nothing", FINDINGS: "audit: queues, index or manifests do not "
              "agree with the log; diff: the stores differ; any job: Spark failed",
              REFUSED: _REFUSED, CANNOT_OPEN: f"{_NO_STORE}; or Spark or Java is missing",
              CORRUPT: "audit: the log is damaged; other jobs: the log of the store that is read is damaged"},
    "readback": {FINE: "the command read all messages", FINDINGS: "a message of a queue or of the log cannot be read", **_READ,
                 CANNOT_OPEN: _NO_STORE},
}


def epilog(command: str | None = None) -> str:
    """What --help says of the exit codes, of one command or of all: a line for each code."""
    said = MEANINGS if command is None else {**EXITS[command], **{code: MEANINGS[code] for code in EVERY}}
    return "\n".join(["exit codes:", *(f"  {code:<4} {when}" for code, when in said.items())])
