import java.io.PrintStream;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * The real broker over a store directory, listening: for measurements beside this library's. It registers nowhere.
 *
 *   DIR PORT [name=value ...]
 *
 * Says "ready" in a line when it listens, and ends with its input.
 */
public final class Serving {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // whatever the broker prints must not mix with the answer
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        Properties given = new Properties();
        given.setProperty("storePathRootDir", args[0]);
        given.setProperty("storePathCommitLog", args[0] + "/commitlog");
        given.setProperty("listenPort", args[1]);
        given.setProperty("brokerIP1", "127.0.0.1");
        given.setProperty("mappedFileSizeCommitLog", Integer.toString(64 << 20));
        for (int i = 2; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            given.setProperty(pair[0], pair[1]);
        }
        BrokerConfig broker = new BrokerConfig();
        NettyServerConfig server = new NettyServerConfig();
        NettyClientConfig client = new NettyClientConfig();
        MessageStoreConfig store = new MessageStoreConfig();
        for (Object config : new Object[] {broker, server, client, store}) MixAll.properties2Object(given, config);
        store.setHaListenPort(server.getListenPort() + 1);
        BrokerController controller = new BrokerController(broker, server, client, store);
        if (!controller.initialize()) throw new IllegalStateException("the broker does not initialize");
        controller.start();
        out.println("ready");
        while (System.in.read() >= 0) { }
        controller.shutdown();
        System.exit(0);
    }
}
