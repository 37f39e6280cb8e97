// mqadmin's commands one after the other in one JVM: java Admin COMMAND ARGUMENT... , COMMAND ARGUMENT...
// A line "== COMMAND" stands before what each prints.
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

public class Admin {
    public static void main(String[] arguments) {
        List<String> command = new ArrayList<>();
        for (int i = 0; i <= arguments.length; i++) {
            if (i < arguments.length && !arguments[i].equals(",")) {
                command.add(arguments[i]);
                continue;
            }
            System.out.println("== " + command.get(0));
            MQAdminStartup.main0(command.toArray(new String[0]), null);
            command.clear();
        }
        System.exit(0);
    }
}
