"""Names that stand in a broker.conf beside the store's own: known, so that they are no misspellings, and ignored.

They steer the broker around the store: its network, its clients, its threads, its topics. brokerIP1 and listenPort are not
among them: together they are the store host that RocketMQ writes into every record (load.py).
Source: fields of BrokerConfig, BrokerIdentity, NettyServerConfig, NettyClientConfig and AuthConfig (4.9.8, 5.3.3 and later);
aclFile is this library's, and tls.* are system properties there. Those of TLS stand here with their defaults, as a broker and a
name server have them.
"""
from rmq_store.errors import ConfigError

TLS_SERVER = {"tls.server.mode": "disabled", "tls.server.certPath": "", "tls.server.keyPath": "", "tls.server.keyPassword": "",
              "tls.server.need.client.auth": "none", "tls.server.trustCertPath": ""}
TLS_CLIENT = {"tls.enable": False, "tls.client.authServer": False, "tls.client.trustCertPath": "", "tls.client.certPath": "",
              "tls.client.keyPath": "", "tls.client.keyPassword": ""}
_CHOICES = {"tls.server.mode": ("disabled", "permissive", "enforcing"),
            "tls.server.need.client.auth": ("none", "optional", "require")}

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
    syncControllerMetadataPeriod tls.client.authServer tls.client.certPath tls.client.keyPassword tls.client.keyPath
    tls.client.trustCertPath tls.enable tls.server.certPath tls.server.keyPassword tls.server.keyPath
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


def snake_name(name: str) -> str:
    """RocketMQ's name as a keyword."""
    return "".join("_" + letter.lower() if letter.isupper() and at > 0 and not name[at - 1].isupper() else letter
                   for at, letter in enumerate(name)).replace(".", "_")


def text_of(name: str, value: object) -> str:
    """An option that is a text, and of which some have a choice. Raises ConfigError."""
    text = str(value).strip()
    if text not in _CHOICES.get(name, (text,)):
        raise ConfigError(f"option {name} is {value!r}: give {', '.join(_CHOICES[name])}")
    return text


def is_broker_only(name: str) -> bool:
    """Whether it is a name of the broker's, in RocketMQ's spelling or, as in a TOML file, in snake_case."""
    return name in BROKER_ONLY or (name.islower() and name.replace("_", "") in _SNAKES)
