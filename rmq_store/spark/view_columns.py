"""The views, and the columns of each with their Spark types. Without pyspark."""
__all__ = ["ERROR_COLUMN", "MESSAGES", "REMOVED_COLUMN", "VIEWS"]

# The first nine as rocketmq-spark names them. Types as Spark's DDL has them.
MESSAGES: dict[str, str] = {
    "topic": "STRING", "queueId": "INT", "queueOffset": "BIGINT", "brokerName": "STRING", "flag": "INT", "body": "BINARY",
    "properties": "MAP<STRING,STRING>", "bornTimestamp": "TIMESTAMP", "storeTimestamp": "TIMESTAMP",
    "tags": "STRING", "keys": "STRING", "msgId": "STRING", "physicalOffset": "BIGINT", "storeSize": "INT", "sysFlag": "INT",
    "bornHost": "STRING", "storeHost": "STRING", "reconsumeTimes": "INT", "preparedTransactionOffset": "BIGINT",
    "bodyCrc": "INT", "commitLogFile": "STRING",
}
ERROR_COLUMN = "error"      # messages with onCorrupt=emit: why a row has only its place
REMOVED_COLUMN = "removed"  # messages, where it is asked for: whether the queue of the row was removed since (delete_topics)
VIEWS: dict[str, dict[str, str]] = {
    "messages": MESSAGES,
    "consumequeue": {"brokerName": "STRING", "topic": "STRING", "queueId": "INT", "queueOffset": "BIGINT",
                     "physicalOffset": "BIGINT", "size": "INT", "tagsCode": "BIGINT"},
    "compaction": {name: MESSAGES[name] for name in (
        "brokerName", "topic", "queueId", "queueOffset", "keys", "tags", "body", "properties", "bornTimestamp",
        "storeTimestamp", "flag", "sysFlag", "reconsumeTimes", "bodyCrc", "storeSize")},
    "index": {"brokerName": "STRING", "file": "STRING", "entry": "INT", "slot": "INT", "keyHash": "INT",
              "physicalOffset": "BIGINT", "timeDiff": "INT", "prev": "INT"},
    "queues": {"brokerName": "STRING", "topic": "STRING", "queueId": "INT", "minOffset": "BIGINT", "maxOffset": "BIGINT",
               "count": "BIGINT", "bytes": "BIGINT", "firstTime": "TIMESTAMP", "lastTime": "TIMESTAMP"},
    "files": {"brokerName": "STRING", "kind": "STRING", "path": "STRING", "base": "BIGINT", "size": "BIGINT",
              "wrotePosition": "BIGINT", "sealed": "BOOLEAN", "firstStoreTime": "TIMESTAMP"},
    "checkpoint": {"brokerName": "STRING", "physicMsgTimestamp": "TIMESTAMP", "logicsMsgTimestamp": "TIMESTAMP",
                   "indexMsgTimestamp": "TIMESTAMP", "masterFlushedOffset": "BIGINT", "confirmPhyOffset": "BIGINT",
                   "abort": "BOOLEAN"},
    "errors": {"brokerName": "STRING", "file": "STRING", "offset": "BIGINT", "endOffset": "BIGINT", "kind": "STRING"},
}
