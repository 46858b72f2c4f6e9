import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Properties;
import org.apache.pulsar.admin.cli.PulsarAdminTool;

/** Runs pulsar-admin for each line of standard input, tabs between arguments: WEB_URL [PLUGIN PARAMETERS]. */
public class AdminCommands {
    static class Tool extends PulsarAdminTool {
        Tool(Properties properties) throws Exception {
            super(properties);
        }

        boolean done(String[] arguments) {
            return run(arguments);
        }
    }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("webServiceUrl", args[0]);
        if (args.length > 1) {
            properties.put("authPlugin", args[1]);
            properties.put("authParams", args[2]);
        }
        PrintStream console = System.out;
        // The tool keeps the streams it finds at first: they are the same for all commands.
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(printed, true);
        System.setOut(stream);
        System.setErr(stream);
        Tool tool = new Tool(properties);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            printed.reset();
            boolean done = tool.done(line.split("\t"));
            stream.flush();
            console.println("### " + (done ? "yes" : "no") + " " + line.replace('\t', ' '));
            console.println(printed);
        }
        console.flush();
        System.exit(0);
    }
}
