# Where the fields of every file lie, and the numbers that mark them: each is named here and nowhere else. C sees constants, and
# codec/layout.py gives the same names to Python with a sentence for each field. Offsets are bytes from the begin of the thing.
# tests/codec/test_layout.py finds literals that stand elsewhere.

cpdef enum:
    # ---- a record of the CommitLog (CommitLog.java, MessageExtEncoder.java)
    MAGIC_V1 = -626843481           # 0xDAA320A7
    MAGIC_V2 = -626843477           # 0xDAA320AB, topic length in two bytes
    MAGIC_BLANK = -875286124        # 0xCBD43194, end of file
    MAGIC_FIRST_BYTE = 0xDA         # of a record's magic code, whatever the version
    RECORD_AT_SIZE = 0
    RECORD_AT_MAGIC = 4
    RECORD_AT_BODY_CRC = 8
    RECORD_AT_QUEUE_ID = 12
    RECORD_AT_FLAG = 16
    RECORD_AT_QUEUE_OFFSET = 20
    RECORD_AT_PHYSICAL_OFFSET = 28
    RECORD_AT_SYS_FLAG = 36
    RECORD_AT_BORN_TIMESTAMP = 40
    RECORD_AT_BORN_HOST = 48
    # Each IPv6 host moves what follows it by HOST_V6_MORE bytes.
    RECORD_AT_STORE_TIMESTAMP = 56
    RECORD_AT_STORE_HOST = 64
    RECORD_AT_RECONSUME_TIMES = 72
    RECORD_AT_PREPARED_OFFSET = 76
    RECORD_AT_BODY_SIZE = 84
    RECORD_AT_BODY = 88             # then the topic behind its length, and the properties behind theirs
    RECORD_HEAD_SIZE = 8            # totalSize and magicCode: without them there is no record
    RECORD_PLACED_SIZE = 36         # bytes that hold the physicalOffset
    RECORD_TIMED_SIZE = 76          # bytes that hold the storeTimestamp, whatever the hosts
    RECORD_FIXED_SIZE = 91          # version 1, both hosts IPv4, everything but body, topic and properties
    HOST_V4_SIZE = 8                # address, then the port in four bytes
    HOST_V6_SIZE = 20
    HOST_V6_MORE = 12
    BLANK_SIZE = 8                  # bytes that always stay free behind the last record of a file
    CRC_PROPERTY_SIZE = 20          # __CRC32# 0x01 ten digits 0x02
    PROPERTIES_SIZE_MAX = 32767
    TOPIC_SIZE_V1_MAX = 127
    FLAG_COMPRESSED = 0x1
    FLAG_MULTI_TAGS = 0x2
    FLAG_TRANSACTION = 0xC
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    FLAG_BORN_V6 = 0x10
    FLAG_STORE_V6 = 0x20
    FLAG_NEED_UNWRAP = 0x40
    FLAG_INNER_BATCH = 0x80
    FLAG_COMPRESSION_TYPE = 0x700

    # ---- an element of a client batch (MessageDecoder.encodeMessage)
    ELEMENT_AT_SIZE = 0
    ELEMENT_AT_MAGIC = 4
    ELEMENT_AT_BODY_CRC = 8
    ELEMENT_AT_FLAG = 12
    ELEMENT_AT_BODY_SIZE = 16
    ELEMENT_AT_BODY = 20
    ELEMENT_FIXED_SIZE = 22         # without body and properties

    # ---- an entry of a queue (ConsumeQueue.java)
    UNIT_AT_PHYSICAL_OFFSET = 0
    UNIT_AT_SIZE = 8
    UNIT_AT_TAGS_CODE = 12
    UNIT_SIZE = 20
    UNIT_FILLER = 0x7FFFFFFF        # in place of the record's size: an entry before the first message of a queue

    # ---- a unit of a queue's extension (ConsumeQueueExt.java)
    EXT_AT_SIZE = 0
    EXT_AT_TAGS_CODE = 2
    EXT_AT_STORE_TIMESTAMP = 10
    EXT_AT_BIT_MAP_SIZE = 18
    EXT_AT_BIT_MAP = 20
    EXT_UNIT_SIZE_MIN = 20          # without bit map
    EXT_UNIT_SIZE_MAX = 32767
    EXT_END_OF_FILE = -1            # in place of a unit's size
    EXT_END_SIZE = 4                # bytes that stay free at the end of a file
    EXT_HASH_MIN = -2147483648      # a tagsCode below it is no hash: it is an address in the extension files

    # ---- an index file (IndexHeader.java, IndexFile.java)
    INDEX_AT_BEGIN_TIMESTAMP = 0
    INDEX_AT_END_TIMESTAMP = 8
    INDEX_AT_BEGIN_PHYSICAL = 16
    INDEX_AT_END_PHYSICAL = 24
    INDEX_AT_SLOT_COUNT = 32
    INDEX_AT_COUNT = 36
    INDEX_HEADER_SIZE = 40
    INDEX_SLOT_SIZE = 4
    ENTRY_AT_KEY_HASH = 0
    ENTRY_AT_PHYSICAL_OFFSET = 4
    ENTRY_AT_TIME_DIFF = 12
    ENTRY_AT_PREVIOUS = 16
    INDEX_ENTRY_SIZE = 20

    # ---- the checkpoint (StoreCheckpoint.java); the last two fields are this store's
    CHECKPOINT_AT_PHYSICAL = 0
    CHECKPOINT_AT_LOGICS = 8
    CHECKPOINT_AT_INDEX = 16
    CHECKPOINT_AT_MASTER_FLUSHED = 24
    CHECKPOINT_AT_CONFIRM = 32
    CHECKPOINT_AT_FLUSHED = 40
    CHECKPOINT_AT_SEAL = 48
    CHECKPOINT_FIELDS_SIZE = 56
    CHECKPOINT_SIZE = 4096
    CHECKPOINT_SEAL_HIGH = 0x726d715f       # an enum has no more than 32 bits in Python
    CHECKPOINT_SEAL_LOW = 0x666c7573
