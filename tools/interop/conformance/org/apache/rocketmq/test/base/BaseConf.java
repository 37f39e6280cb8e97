package org.apache.rocketmq.test.base;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.MQPullConsumer;
import org.apache.rocketmq.client.consumer.MQPushConsumer;
import org.apache.rocketmq.client.producer.MQProducer;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.test.client.rmq.RMQAsyncSendProducer;
import org.apache.rocketmq.test.client.rmq.RMQNormalConsumer;
import org.apache.rocketmq.test.client.rmq.RMQNormalProducer;
import org.apache.rocketmq.test.client.rmq.RMQTransactionalProducer;
import org.apache.rocketmq.test.clientinterface.AbstractMQConsumer;
import org.apache.rocketmq.test.clientinterface.AbstractMQProducer;
import org.apache.rocketmq.test.factory.ConsumerFactory;
import org.apache.rocketmq.test.listener.AbstractListener;
import org.apache.rocketmq.test.util.MQAdminTestUtils;
import org.apache.rocketmq.test.util.MQRandomUtils;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.admin.MQAdminExt;

/** Stands before RocketMQ's class of this name: the brokers are there already, in processes of their own.
 *  -Dnames=HOST:PORT is their name server, -Dcluster their cluster, -Dbrokers=A,B,C their names. There are no broker
 *  objects. */
public class BaseConf {
    public static final String NAMESRV_ADDR = System.getProperty("names");
    protected static final String CLUSTER_NAME = System.getProperty("cluster");
    private static final String[] NAMES = System.getProperty("brokers").split(",");
    protected static final String BROKER1_NAME = NAMES[0];
    protected static final String BROKER2_NAME = NAMES[1];
    protected static final String BROKER3_NAME = NAMES[2];
    protected static final int BROKER_NUM = 3;
    protected static final int WAIT_TIME = 5;
    protected static final int CONSUME_TIME = 2 * 60 * 1000;
    protected static final int QUEUE_NUMBERS = 8;
    protected static NamesrvController namesrvController;
    protected static BrokerController brokerController1;
    protected static BrokerController brokerController2;
    protected static BrokerController brokerController3;
    protected static List<BrokerController> brokerControllerList = new ArrayList<>();
    protected static Map<String, BrokerController> brokerControllerMap = new HashMap<>();
    protected static List<Object> mqClients = new ArrayList<>();
    protected static boolean debug = false;

    static {
        System.setProperty("rocketmq.remoting.version", Integer.toString(MQVersion.CURRENT_VERSION));
    }

    public BaseConf() {
        waitBrokerRegistered(NAMESRV_ADDR, CLUSTER_NAME, BROKER_NUM);
    }

    public static void waitBrokerRegistered(String names, String cluster, int count) {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(500);
        admin.setNamesrvAddr(names);
        try {
            admin.start();
            for (int i = 0; i < 60; i++) {
                try {
                    if (admin.examineTopicRouteInfo(cluster).getBrokerDatas().size() == count) {
                        return;
                    }
                } catch (Exception notYet) {
                    // they register
                }
                Thread.sleep(500);
            }
        } catch (Exception error) {
            throw new AssertionError(error);
        } finally {
            admin.shutdown();
        }
        throw new AssertionError("the name server has no route to " + count + " brokers of " + cluster);
    }

    /** There is no store object to ask. The tests that call it look again themselves. */
    public boolean awaitDispatchMs(long milliseconds) throws Exception {
        Thread.sleep(200);
        return true;
    }

    public static String initTopic() {
        return initTopicWithName(MQRandomUtils.getRandomTopic());
    }

    public static String initTopic(TopicMessageType type) {
        return initTopicWithName(MQRandomUtils.getRandomTopic(), type);
    }

    public static String initTopicOnSampleTopicBroker(String sample) {
        return initTopicOnSampleTopicBroker(MQRandomUtils.getRandomTopic(), sample);
    }

    public static String initTopicOnSampleTopicBroker(String sample, TopicMessageType type) {
        return initTopicOnSampleTopicBroker(MQRandomUtils.getRandomTopic(), sample, type);
    }

    public static String initTopicWithName(String topic) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, CLUSTER_NAME, CQType.SimpleCQ);
        return topic;
    }

    public static String initTopicWithName(String topic, TopicMessageType type) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, CLUSTER_NAME, type);
        return topic;
    }

    public static String initTopicOnSampleTopicBroker(String topic, String sample) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, sample, CQType.SimpleCQ);
        return topic;
    }

    public static String initTopicOnSampleTopicBroker(String topic, String sample, TopicMessageType type) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, sample, type);
        return topic;
    }

    public static String initConsumerGroup() {
        return initConsumerGroup(MQRandomUtils.getRandomConsumerGroup());
    }

    public static String initConsumerGroup(String group) {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        return initConsumerGroup(config);
    }

    public static String initConsumerGroup(SubscriptionGroupConfig config) {
        MQAdminTestUtils.createSub(NAMESRV_ADDR, CLUSTER_NAME, config);
        return config.getGroupName();
    }

    private static <T> T kept(T client) {
        mqClients.add(client);
        return client;
    }

    public static DefaultMQAdminExt getAdmin(String names) {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(3 * 1000);
        admin.setNamesrvAddr(names);
        admin.setPollNameServerInterval(100);
        return kept(admin);
    }

    public static RMQNormalProducer getProducer(String names, String topic) {
        return getProducer(names, topic, false);
    }

    public static RMQNormalProducer getProducer(String names, String topic, boolean tls) {
        return kept(new RMQNormalProducer(names, topic, tls));
    }

    public static RMQTransactionalProducer getTransactionalProducer(String names, String topic, TransactionListener listener) {
        return kept(new RMQTransactionalProducer(names, topic, false, listener));
    }

    public static RMQNormalProducer getProducer(String names, String topic, String group, String instance) {
        return kept(new RMQNormalProducer(names, topic, group, instance));
    }

    public static RMQAsyncSendProducer getAsyncProducer(String names, String topic) {
        return kept(new RMQAsyncSendProducer(names, topic));
    }

    public static RMQNormalConsumer getConsumer(String names, String topic, String tags, AbstractListener listener) {
        return getConsumer(names, topic, tags, listener, false);
    }

    public static RMQNormalConsumer getConsumer(String names, String topic, String tags, AbstractListener listener,
            boolean tls) {
        return getConsumer(names, initConsumerGroup(), topic, tags, listener, tls);
    }

    public static RMQNormalConsumer getConsumer(String names, String group, String topic, String tags,
            AbstractListener listener) {
        return getConsumer(names, group, topic, tags, listener, false);
    }

    public static RMQNormalConsumer getConsumer(String names, String group, String topic, String tags,
            AbstractListener listener, boolean tls) {
        return kept(ConsumerFactory.getRMQNormalConsumer(names, group, topic, tags, listener, tls));
    }

    public static Set<String> getBrokers() {
        return new HashSet<>(Arrays.asList(NAMES));
    }

    public static void shutdown() {
        List<Object> clients = new ArrayList<>(mqClients);
        mqClients.clear();
        shutdown(clients);
    }

    public static void shutdown(List<Object> clients) {
        for (Object client : clients) {
            if (client instanceof AbstractMQProducer) {
                ((AbstractMQProducer) client).shutdown();
            } else if (client instanceof AbstractMQConsumer) {
                ((AbstractMQConsumer) client).shutdown();
            } else if (client instanceof MQAdminExt) {
                ((MQAdminExt) client).shutdown();
            } else if (client instanceof MQProducer) {
                ((MQProducer) client).shutdown();
            } else if (client instanceof MQPullConsumer) {
                ((MQPullConsumer) client).shutdown();
            } else if (client instanceof MQPushConsumer) {
                ((MQPushConsumer) client).shutdown();
            }
        }
    }
}
