"""RocketMQ's MessageStoreConfig names that are no options here, each with its default and the reason.

Grouped by reason, because one reason holds for many. NOT_SUPPORTED: capabilities this store has not, so that another value than
RocketMQ's default is an error. NO_EFFECT: what steers the inside of RocketMQ's store, or a capability that is off; a value is
checked for its type, and one other than RocketMQ's default is logged, so that nobody believes it did something.
Source: MessageStoreConfig.java (4.9.8, 5.3.3 and later), with RocketMQ's spelling.
"""
from collections.abc import Mapping

_NO_REPLICATION = "this store speaks the classic HA protocol only"
_NO_DELIVERY = "one native thread delivers delayed messages in the order of their queues"
_ONE_COMPACTION = "one thread compacts"
_NO_ROCKSDB = "queues are files"
_NO_COLD_DATA = "cold_read_bytes_max limits reads of older messages"
_UNREAD = "RocketMQ's file store does not read it either"

_REFUSED: Mapping[str, Mapping[str, object]] = {
    "the option visibility decides which messages can be read": {"readUnCommitted": False},
    "this store has no plug-ins": {"messageStorePlugIn": ""},
    _NO_ROCKSDB: {
        "storeType": "default", "rocksdbCQDoubleWriteEnable": False, "combineCQPreferCQType": "default",
        "combineAssignOffsetCQType": "default"},
    _NO_COLD_DATA: {"coldDataFlowControlEnable": False},
    _NO_REPLICATION: {
        "enableDLegerCommitLog": False, "enableControllerMode": False, "asyncLearner": False},
}

_IGNORED: Mapping[str, Mapping[str, object]] = {
    "the root is the path that open() gets": {"storePathRootDir": ""},
    _NO_ROCKSDB: {
        "cleanRocksDBDirtyCQIntervalMin": 60, "statRocksDBCQIntervalSec": 10,
        "memTableFlushIntervalMs": 3_600_000, "realTimePersistRocksDBConfig": True, "enableRocksDBLog": False,
        "bottomMostCompressionTypeForConsumeQueueStore": "zstd",
        "rocksdbCompressionType": "lz4", "rocksdbFlushWalFrequency": 1024, "rocksdbWalFileRollingThreshold": 1 << 30,
        "combineCQLoadingCQTypes": "default;defaultRocksDB", "combineCQEnableCheckSelf": False,
        "combineCQMaxExtraSearchCommitLogFiles": 3},
    "a get searches a batch queue in its files": {"searchBcqByCacheEnable": True},
    "the length of a bit map follows from bloom_filter_error_pct and bloom_filter_groups": {"bitMapLengthConsumeQueueExt": 64},
    "a put spins briefly before it sleeps on the put lock; learning the time to spin gained nothing": {
        "useABSLock": False, "spinLockCollisionRetreatOptimalDegree": 1000},
    "one put lock orders all queues": {"topicQueueLockNum": 32},
    "a warmed file is synced once": {"flushLeastPagesWhenWarmMapedFile": 4096},
    "the length of the topic alone decides the version of a record": {"autoMessageVersionOnTopicLen": True},
    "a put waits for flush_deadline_ms": {"putMessageTimeout": 8000},
    "each put wakes the commit thread, and commit_pages_min and commit_interval_max_ms decide when it commits": {
        "wakeCommitWhenPutMessage": True, "commitIntervalCommitLog": 200},
    "queue entries are always written through the file": {"putConsumeQueueDataByFileChannel": True},
    "dispatch continues where the queues and the index really end": {
        "recheckReputOffsetFromCq": False, "enableAcceleratedRecovery": False,
        "enableLogConsumeQueueRepeatedlyBuildWhenRecover": False},
    "a failed flush always stops the store": {"enableRunningFlagsInFlush": False},
    "one native thread dispatches": {"enableBuildConsumeQueueConcurrently": False, "batchDispatchRequestThreadPoolNums": 16},
    "the lag of a consumer group is always counted": {"diskFallRecorded": True},
    "get() always corrects offsets as a master does": {"offsetCheckInSlave": False},
    "one get reads one consume-queue file": {"travelCqFileNumWhenGetMessage": 1},
    "the store does not change the kernel's read-ahead": {"dataReadAheadEnable": True},
    _UNREAD: {
        "maxAsyncPutMessageRequests": 5000, "maxRecoveryCommitlogFiles": 30, "dispatchCqThreads": 10,
        "dispatchCqCacheNum": 4096, "enableAsyncReput": True, "dispatchFromSenderThread": False,
        "putMsgIndexHightWater": 600_000,
        "pullBatchMaxMessageCount": 160, "enableCleanExpiredOffset": False, "maxBatchDeleteFilesNum": 50},
    _NO_COLD_DATA: {
        "accessMessageInMemoryHotRatio": 26, "coldDataScanEnable": False,
        "timerColdDataCheckIntervalMs": 60_000, "sampleSteps": 32},
    "every cleaning round checks the files that message views hold": {"redeleteHangedFileInterval": 120_000},
    "the first entry of a queue moves with the log": {
        "correctLogicMinOffsetSleepInterval": 1, "correctLogicMinOffsetForceInterval": 300_000},
    "the limits apply to the whole disk": {"replicasPerDiskPartition": 1, "logicalDiskSpaceCleanForciblyThreshold": "0.8"},
    "the memory of a file is given back only while nobody reads it": {"commitLogForceSwapMapInterval": 43_200_000},
    "a map stays where it is when its memory is given back": {"cleanSwapedMapInterval": 300_000},
    "queues are not mapped": {
        "logicQueueForceSwapMapInterval": 43_200_000, "logicQueueSwapMapInterval": 3_600_000,
        "logicQueueSwapMapReserveFileNum": 20},
    _NO_DELIVERY: {
        "enableScheduleMessageStats": True, "enableScheduleAsyncDeliver": False,
        "scheduleAsyncDeliverMaxPendingLimit": 2000, "scheduleAsyncDeliverMaxResendNum2Blocked": 3},
    "one native thread takes and delivers timer messages": {
        "timerGetMessageThreadNum": 3, "timerPutMessageThreadNum": 3, "timerEnableDisruptor": False},
    "the timer counts its messages when the store opens": {
        "timerEnableCheckMetrics": True, "timerCheckMetricsWhen": "05", "timerMetricSmallThreshold": 1_000_000,
        "timerProgressLogIntervalMs": 10_000},
    "delayed messages are not in the timer wheel": {"timerInterceptDelayLevel": False},
    "the timer works while the store is open for writing; set_writeable(False) makes its messages wait": {
        "timerStopEnqueue": False, "timerStopDequeue": False},
    "the timer skips a message that cannot be read, logs it, and repeats every other delivery that fails": {
        "timerSkipUnknownError": False, "timerEnableRetryUntilSuccess": False},
    "the timer wheel is in memory": {"timerWarmEnable": False},
    "a broker starts at once": {"disappearTimeAfterStart": -1},
    _NO_REPLICATION: {
        "haMaxTimeSlaveNotCatchup": 15_000, "syncMasterFlushOffsetWhenStartup": False,
        "maxChecksumRange": 1 << 30, "maxSlaveResendLength": 268_435_456, "syncFromLastFile": False,
        "dLegerGroup": "", "dLegerPeers": "", "dLegerSelfId": "", "preferredLeaderId": "",
        "isEnableBatchPush": False, "enableBatchPush": False, "storePathDLedgerCommitLog": "", "storePathEpochFile": "",
        "storePathBrokerIdentity": ""},
    _ONE_COMPACTION: {"compactionThreadNum": 6},
}



def _by_name(groups: Mapping[str, Mapping[str, object]]) -> dict[str, tuple[object, str]]:
    return {name: (default, reason) for reason, names in groups.items() for name, default in names.items()}


# name -> (RocketMQ's default, why)
NOT_SUPPORTED: dict[str, tuple[object, str]] = _by_name(_REFUSED)
NO_EFFECT: dict[str, tuple[object, str]] = _by_name(_IGNORED)
