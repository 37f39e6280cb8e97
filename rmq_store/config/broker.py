"""Names that stand in a broker.conf beside the store's own: known, so that they are no misspellings, and ignored.

They steer the broker around the store: its network, its clients, its threads, its topics. brokerIP1 and listenPort are not
among them: together they are the store host that RocketMQ writes into every record (load.py).
Source: fields of BrokerConfig, BrokerIdentity, NettyServerConfig, NettyClientConfig and AuthConfig (4.9.8, 5.3.3 and later);
aclFile is this library's, and tls.* are system properties there.
"""

_NAMES = """
    accountStatsEnable accountStatsPrintZeroValues ackMessageThreadPoolNums ackThreadPoolQueueCapacity aclCacheExpiredSecond
    aclCacheMaxNum aclCacheRefreshSecond aclEnable aclFile adminBrokerThreadPoolNums adminBrokerThreadPoolQueueCapacity
    allowRecallWhenBrokerNotWriteable appendAckAsync appendCkAsync asyncSendEnable authConfigPath authenticationEnabled
    authenticationMetadataProvider authenticationProvider authenticationStrategy authenticationWhitelist
    authorizationEnabled authorizationMetadataProvider authorizationProvider authorizationStrategy authorizationWhitelist
    autoCreateSubscriptionGroup autoCreateTopicEnable autoDeleteUnusedStats bindAddress broadcastOffsetExpireMaxSecond
    broadcastOffsetExpireSecond brokerClusterName brokerConfigPath brokerElectionPriority brokerFastFailureEnable
    brokerHeartbeatInterval brokerIP2 brokerId brokerName brokerNotActiveTimeoutMillis brokerPermission brokerTopicEnable
    cgColdReadThreshold channelExpiredTimeout channelNotActiveInterval checkSyncStateSetPeriod cleanOfflineBrokerInterval
    clearRetryTopicWhenDeleteTopic clientAsyncSemaphoreValue clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds
    clientCloseSocketIfTimeout clientManageThreadPoolNums clientManagerThreadPoolQueueCapacity clientOnewaySemaphoreValue
    clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads clusterName
    clusterTopicEnable coldCtrStrategyEnable commercialBaseCount commercialBigCount commercialEnable commercialSizePerMsg
    commercialTimerCount commercialTransCount compatibleWithOldNameSrv compressedRegister configBlackList
    configManagerVersion configName connectTimeoutMillis consumerFallbehindThreshold consumerManageThreadPoolNums
    consumerManagerThreadPoolQueueCapacity consumerOffsetUpdateVersionStep controllerAddr controllerHeartBeatTimeoutMills
    defaultMessageRequestMode defaultPopShareQueueNum defaultTopicQueueNums delayOffsetUpdateVersionStep
    disableCallbackExecutor disableConsumeIfConsumerReadSlowly disableNettyWorkerGroup enableBroadcastOffsetStore
    enableConnectionMetrics enableCreateSysGroup enableDetailStat enableFastChannelEventProcess
    enableLagAndDlqMetrics enableLmqStats enableMessageStoreMetrics enableMixedMessageType enableNetWorkFlowControl
    enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge
    enablePopLog enablePopMessageThreshold enablePopMetrics enablePropertyFilter enableReconnectForGoAway
    enableRegisterProducer enableRemoteEscape enableRemotingMetrics enableRequestMetrics enableRetryTopicV2
    enableShutdownGracefully enableSingleTopicRegister enableSkipLongAwaitingAck enableSlaveActingMaster enableSplitMetadata
    enableSplitRegistration enableStatsMetrics enableTransactionMetrics endTransactionPoolQueueCapacity
    endTransactionThreadPoolNums estimateAccumulation fetchControllerAddrByDnsLookup
    fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval
    filterServerNums filterSupportRetry flushConsumerOffsetHistoryInterval forceRegister
    forwardTimeout globalColdReadThreshold heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity highSpeedMode
    initAuthenticationUser initPopOffsetByCheckMsgInMem innerClientAuthenticationCredentials isBrokerContainer
    isInBrokerContainer isScanAvailableNameSrv isolateLogEnable litePullMessageEnable litePullMessageThreadPoolNums
    litePullThreadPoolQueueCapacity loadBalancePollNameServerInterval loadBalanceProcessorThreadPoolNums
    loadBalanceThreadPoolQueueCapacity lockInStrictMode longPollingEnable maxDelayTime
    maxPopPollingSize maxReconnectIntervalTimeSeconds maxStatsIdleTimeInMinutes metricGrpcExporterIntervalInMills
    metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills metricsExporterType metricsGrpcExporterHeader
    metricsGrpcExporterTarget metricsInDelta metricsLabel metricsOtelCardinalityLimit metricsPromExporterHost
    metricsPromExporterPort migrateAuthFromV1Enabled msgTraceTopicName namesrvAddr notifyConsumerIdsChangedEnable
    popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut popConsumerFSServiceInit
    popConsumerKVServiceEnable popConsumerKVServiceInit popConsumerKVServiceLog popFromRetryProbability
    popInflightMessageThreshold popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize
    popPollingSize popResponseReturnActualRetryTopic popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead
    printChannelGroups printChannelGroupsMinNum processReplyMessageThreadPoolNums pullMessageThreadPoolNums
    pullThreadPoolQueueCapacity putMessageFutureThreadPoolNums putThreadPoolQueueCapacity queryMessageThreadPoolNums
    queryThreadPoolQueueCapacity realTimeNotifyConsumerChange recallMessageEnable
    regionId registerBrokerTimeoutMills registerNameServerPeriod rejectPullConsumerEnable rejectTransactionMessage
    replyThreadPoolQueueCapacity retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs reviveInterval reviveMaxSlow
    reviveQueueNum reviveScanTime rocketmqHome sendHeartbeatTimeoutMillis sendMessageThreadPoolNums
    sendThreadPoolQueueCapacity serverAsyncSemaphoreValue serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds
    serverLoadBalancerEnable serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable
    serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
    shortPollingTimeMills shutdownWaitTimeSeconds skipPreOnline skipWhenCKRePutReachMaxTimes slaveReadEnable
    socksProxyConfig splitMetadataSize splitRegistrationSize startAcceptSendRequestTimeStamp
    statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum statefulAuthorizationCacheExpiredSecond
    statefulAuthorizationCacheMaxNum storeReplyMessageEnable subscriptionExpiredTimeout syncBrokerMemberGroupPeriod
    syncControllerMetadataPeriod tls.server.certPath tls.server.keyPassword tls.server.keyPath
    tls.server.mode tls.server.need.client.auth tls.server.trustCertPath traceOn traceTopicEnable
    transactionMetricFlushInterval transferMsgByHeap updateNameServerAddrPeriod useEpollNativeSelector usePIDColdCtrStrategy
    useServerSideResetOffset
    useStaticSubscription useTLS userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond
    validateSystemTopicWhenUpdateTopic waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue
    waitTimeMillsInLitePullQueue waitTimeMillsInPullQueue waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue
    writeBufferHighWaterMark writeBufferLowWaterMark
"""

BROKER_ONLY = frozenset(_NAMES.split())
_SNAKES = frozenset(name.replace(".", "").lower() for name in BROKER_ONLY)

# Widely copied into configurations, and read by no RocketMQ: the directories always lie under the root.
NEVER_READ = frozenset({"storePathConsumeQueue", "storePathIndex", "storeCheckpoint", "abortFile", "brokerConfigPaths"})


def is_broker_only(name: str) -> bool:
    """Whether it is a name of the broker's, in RocketMQ's spelling or, as in a TOML file, in snake_case."""
    return name in BROKER_ONLY or (name.islower() and name.replace("_", "") in _SNAKES)
