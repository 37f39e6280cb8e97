import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/** Classes of RocketMQ's integration tests, one after the other, against brokers that are there (see BaseConf).
 *  java Conformance CLASS...
 *  For each test a line {"test":"CLASS.method","result":"passed|failed|ignored","ms":n,"said":"..."}. */
public class Conformance {
    static final String PACKAGE = "org.apache.rocketmq.test.";

    static synchronized void say(Description test, String result, long ms, String said) {
        String name = test.getClassName() + (test.getMethodName() == null ? "" : "." + test.getMethodName());
        System.out.println("{\"test\":\"" + (name.startsWith(PACKAGE) ? name.substring(PACKAGE.length()) : name)
                + "\",\"result\":\"" + result + "\",\"ms\":" + ms + ",\"said\":\""
                + said.replaceAll("[\\\\\"\\p{Cntrl}]", " ") + "\"}");
        System.out.flush();
    }

    public static void main(String[] names) throws Exception {
        JUnitCore core = new JUnitCore();
        core.addListener(new RunListener() {
            long begun;
            Failure failure;

            @Override
            public void testStarted(Description test) {
                begun = System.currentTimeMillis();
                failure = null;
            }

            @Override
            public void testFailure(Failure found) {
                failure = found;
                found.getException().printStackTrace();
                if (!found.getDescription().isTest()) {         // of the class, before or behind its tests
                    say(found.getDescription(), "failed", 0, String.valueOf(found.getException()));
                }
            }

            @Override
            public void testFinished(Description test) {
                say(test, failure == null ? "passed" : "failed", System.currentTimeMillis() - begun,
                        failure == null ? "" : String.valueOf(failure.getException()));
            }

            @Override
            public void testIgnored(Description test) {
                say(test, "ignored", 0, "");
            }
        });
        for (String name : names) {
            core.run(Request.aClass(Class.forName(PACKAGE + name)));
        }
        System.out.flush();
        System.exit(0);
    }
}
