"""The keywords of MessageStore.open and reconfigure, for type checkers: a misspelt one is an error before it runs.

Made by `python -m rmq_store.config.document typed > rmq_store/config/typed.py`, from the table of options. RocketMQ's names
take what our option takes, or RocketMQ's text.
"""
import os
from collections.abc import Sequence
from typing import Literal, TypedDict

__all__ = ["AllOptions", "LiveOptions", "OpenOptions"]


class LiveOptions(TypedDict, total=False):
    """Options that may change while a store is open."""

    message_size_max_bytes: int | str
    maxMessageSize: int | str
    topic_size_max_bytes: int | str
    maxTopicLength: int | str
    transaction_timeout_ms: int | str
    transactionTimeOut: int | str
    transaction_check_interval_ms: int | str | None
    transactionCheckInterval: int | str
    transaction_check_max: int | str
    transactionCheckMax: int | str
    transaction_op_size_max_bytes: int | str
    transactionOpMsgMaxSize: int | str
    busy_after_ms: int | str
    osPageCacheBusyTimeOutMills: int | str
    pool_empty: Literal["wait", "fail"]
    fastFailIfNoBufferInStorePool: bool | str
    flush_deadline_ms: int | str
    syncFlushTimeout: int | str
    close_timeout_ms: int | str
    count_scan_max: int | str
    maxConsumeQueueScan: int | str
    count_matches_max: int | str
    sampleCountThreshold: int | str
    cold_read_bytes_max: int | str | None
    retention_hours: int | str | None
    fileReservedTime: int | str
    retention_hours_of_day: str | int | Sequence[int]
    deleteWhen: str | int | Sequence[int]
    disk_clean_pct: int | str
    diskMaxUsedSpaceRatio: int | str
    disk_force_pct: int | str
    diskSpaceCleanForciblyRatio: int | str
    clean_forced: bool | str
    cleanFileForciblyEnable: bool | str
    disk_full_pct: int | str | None
    diskSpaceWarningLevelRatio: int | str
    clean_files_max: int | str
    deleteFileBatchMax: int | str
    get_bytes_max_memory: int | str
    maxTransferBytesOnMessageInMemory: int | str
    get_count_max_memory: int | str
    maxTransferCountOnMessageInMemory: int | str
    get_bytes_max_disk: int | str
    maxTransferBytesOnMessageInDisk: int | str
    get_count_max_disk: int | str
    maxTransferCountOnMessageInDisk: int | str
    memory_ratio_pct: int | str
    accessMessageInMemoryMaxRatio: int | str
    filter_bytes_max: int | str
    maxFilterMessageSize: int | str
    long_polling_timeout_ms: int | str
    query_batch_max: int | str
    maxMsgsNumBatch: int | str
    query_count_max: int | str
    defaultQueryMaxNum: int | str
    flush_interval_ms: int | str
    flushIntervalCommitLog: int | str
    flush_pages_min: int | str
    flushCommitLogLeastPages: int | str
    flush_interval_max_ms: int | str
    flushCommitLogThoroughInterval: int | str
    flush_wake: Literal["timed", "eager"]
    flushCommitLogTimed: bool | str
    wakeFlushWhenPutMessage: bool | str
    commit_pages_min: int | str
    commitCommitLogLeastPages: int | str
    commit_interval_max_ms: int | str
    commitCommitLogThoroughInterval: int | str
    consumequeue_flush_interval_ms: int | str
    flushIntervalConsumeQueue: int | str
    consumequeue_flush_pages_min: int | str
    flushConsumeQueueLeastPages: int | str
    consumequeue_flush_interval_max_ms: int | str
    flushConsumeQueueThoroughInterval: int | str
    put_lock_dump: bool | str
    debugLockEnable: bool | str


class OpenOptions(LiveOptions, total=False):
    """All options that open() does not name itself."""

    follow: bool | str
    skip_holes: bool | str
    transientStorePoolEnable: bool | str
    writeWithoutMmap: bool | str
    flushDiskType: bool | str
    role: Literal["master", "sync_master", "slave"]
    brokerRole: bool | str
    ha_listen: str | int | None
    haListenPort: str | int
    ha_master: str | None
    haMasterAddress: str
    ha_master_broker: str | None
    ha_metadata_interval_ms: int | str
    syncBrokerMetadataPeriod: int | str
    ha_send_heartbeat_interval_ms: int | str
    haSendHeartbeatInterval: int | str
    ha_housekeeping_interval_ms: int | str
    haHousekeepingInterval: int | str
    ha_transfer_batch_size_bytes: int | str
    haTransferBatchSize: int | str
    ha_slave_fallbehind_max_bytes: int | str
    haSlaveFallbehindMax: int | str
    haMaxGapNotInSync: int | str
    slave_timeout_ms: int | str
    slaveTimeout: int | str
    total_replicas: int | str
    totalReplicas: int | str
    in_sync_replicas: int | str
    inSyncReplicas: int | str
    min_in_sync_replicas: int | str
    minInSyncReplicas: int | str
    all_ack_in_sync_state_set: bool | str
    allAckInSyncStateSet: bool | str
    auto_in_sync_replicas_enabled: bool | str
    enableAutoInSyncReplicas: bool | str
    ha_flow_control_enabled: bool | str
    haFlowControlEnable: bool | str
    ha_transfer_rate_max_bytes: int | str
    maxHaTransferByteInSecond: int | str
    commitlog_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    storePathCommitLog: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    commitlog_paths_readonly: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    readOnlyCommitLogStorePaths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    commitlog_loss_accepted: bool | str
    consumequeue_path: str | os.PathLike[str] | None
    index_path: str | os.PathLike[str] | None
    segment_size_bytes: int | str
    mappedFileSizeCommitLog: int | str
    mapedFileSizeCommitLog: int | str
    consumequeue_file_size_bytes: int | str
    mappedFileSizeConsumeQueue: int | str
    mapedFileSizeConsumeQueue: int | str
    batch_consumequeue_file_size_bytes: int | str
    mapperFileSizeBatchConsumeQueue: int | str
    consumequeue_ext_enabled: bool | str
    enableConsumeQueueExt: bool | str
    consumequeue_ext_file_size_bytes: int | str
    mappedFileSizeConsumeQueueExt: int | str
    compaction_enabled: bool | str
    enableCompaction: bool | str
    compaction_file_size_bytes: int | str
    compactionMappedFileSize: int | str
    compaction_cq_file_size_bytes: int | str
    compactionCqMappedFileSize: int | str
    index_enabled: bool | str
    messageIndexEnable: bool | str
    index_slots: int | str
    maxHashSlotNum: int | str
    index_entries_max: int | str
    maxIndexNum: int | str
    record_crc: bool | str
    enabledAppendPropCRC: bool | str
    duplication_enabled: bool | str
    duplicationEnable: bool | str
    delay: Literal["deliver", "store_only", "refuse"]
    delay_offset_flush_interval_ms: int | str
    flushDelayOffsetInterval: int | str
    delay_levels: str | Sequence[int]
    messageDelayLevel: str | Sequence[int]
    timer_wheel_enable: bool | str
    timerWheelEnable: bool | str
    timer_precision_ms: int | str
    timerPrecisionMs: int | str
    timer_max_delay_sec: int | str
    timerMaxDelaySec: int | str
    timer_roll_window_slot: int | str
    timerRollWindowSlot: int | str
    timer_congest_num_each_slot: int | str
    timerCongestNumEachSlot: int | str
    timer_flush_interval_ms: int | str
    timerFlushIntervalMs: int | str
    timer_log_file_bytes: int | str
    mappedFileSizeTimerLog: int | str
    transaction_op_interval_ms: int | str
    transactionOpBatchInterval: int | str
    enable_lmq: bool | str
    enableLmq: bool | str
    enable_multi_dispatch: bool | str
    enableMultiDispatch: bool | str
    lmq_count_max: int | str
    maxLmqConsumeQueueNum: int | str
    put_hooks: str | Sequence[str]
    dispatchers: str | Sequence[str]
    visibility: Literal["committed", "durable"] | None
    recover_check_crc: bool | str
    checkCRCOnRecover: bool | str
    record_crc_required: bool | str
    forceVerifyPropCRC: bool | str
    index_recover_safe: bool | str
    messageIndexSafe: bool | str
    manifest_enabled: bool | str
    manifest_interval_ms: int | str
    map_release_enabled: bool | str
    mappedFileSwapEnable: bool | str
    map_release_interval_ms: int | str
    commitLogSwapMapInterval: int | str
    map_release_reserve_files: int | str
    commitLogSwapMapReserveFileNum: int | str
    signals: bool | str
    guard_maps: bool | str
    offsets_flush_interval_ms: int | str
    flushConsumerOffsetInterval: int | str
    enable_calc_filter_bit_map: bool | str
    enableCalcFilterBitMap: bool | str
    bloom_filter_error_pct: int | str
    maxErrorRateOfBloomFilter: int | str
    bloom_filter_groups: int | str
    expectConsumerNumUseFilter: int | str
    filter_data_clean_span_ms: int | str
    filterDataCleanTimeSpan: int | str
    recover_concurrently: bool | str
    recoverConcurrently: bool | str
    recover_thread_pool_nums: int | str
    recoverThreadPoolNums: int | str
    stats_file_interval_ms: int | str | None
    clean_interval_ms: int | str
    cleanResourceInterval: int | str
    clean_hanged_ms: int | str
    destroyMapedFileIntervalForcibly: int | str
    uring_direct: Literal["auto", "on", "off"]
    uring_depth: int | str
    uring_durability: Literal["auto", "fdatasync", "dsync"]
    uring_sqpoll: bool | str
    uring_iopoll: bool | str
    clean_pace_ms: int | str
    deleteCommitLogFilesInterval: int | str
    clean_queue_pace_ms: int | str
    deleteConsumeQueueFilesInterval: int | str
    compaction_interval_ms: int | str
    compactionScheduleInternal: int | str
    compaction_map_bytes: int | str
    maxOffsetMapSize: int | str
    pool_window_size_bytes: int | str
    pool_window_count: int | str
    transientStorePoolSize: int | str
    pool_mlock: bool | str
    pool_hugepages: bool | str
    segment_warm: bool | str
    warmMapedFileEnable: bool | str
    warmMappedFileEnable: bool | str
    segment_mlock: bool | str
    segment_prezero: Literal["off", "window", "full"] | None
    measure_puts: bool | str
    slow_put_ms: int | str
    put_lock: Literal["mutex", "spin"]
    useReentrantLockWhenPutMessage: bool | str
    consumequeue_fd_max: int | str


class AllOptions(OpenOptions, total=False):
    """All keywords of open()."""

    must_exist: bool
    profile: str | os.PathLike[str] | None
    config: str | os.PathLike[str] | None
    readonly: bool | str
    compat: str
    write_path: str
    flush_mode: str
    flush_backend: str
    store_host: str
