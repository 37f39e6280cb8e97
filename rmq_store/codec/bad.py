"""Why a record is bad, in words: one list for recovery, the walks of Spark and copies, verify, scrub and repair.

_bad.pxd has the numbers for C, and the functions that decide. Pure data, any thread.
"""
from enum import Enum

__all__ = ["FINDINGS", "Bad"]


class Bad(Enum):
    """One reason. `text` is the phrase in events, errors and the column `kind` of Spark's view `errors`; `finding` is the kind
    that verify, scrub and Spark's audit report; `meaning` is one sentence for people."""

    ZEROS = (1, "zeros before the end-of-file record", "log_hole", "Nothing was written here, or a crash lost it.")
    MAGIC = (2, "unknown magic code", "log_hole", "The bytes at this place do not begin a record of a known version.")
    SIZE = (3, "impossible size", "log_hole", "A length leads out of the file, or the parts do not add up to totalSize.")
    PLACE = (4, "record of another place", "log_hole", "The record names another log offset as its own.")
    BODY_CRC = (5, "wrong checksum", "body_crc", "The CRC-32 of the body is not the one in the record.")
    RECORD_CRC = (6, "wrong checksum of the whole record", "record_crc",
                  "The property `__CRC32#` does not fit the record, or it is missing and record_crc_required is on.")
    FIELD = (7, "field that no store writes", "record_header",
             "The topic is illegal, or the queue id or queue offset is negative.")
    TORN = (8, "a record of which a part is missing", "log_hole", "A crash lost a sector of the topic or the properties.")

    def __init__(self, number: int, text: str, finding: str, meaning: str) -> None:
        self.number = number
        self.text = text
        self.finding = finding
        self.meaning = meaning


FINDINGS = {bad.text: bad.finding for bad in Bad}
