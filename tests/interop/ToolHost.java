import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Apache Kafka's tools one after the other in one JVM, for tests.
 *
 * A line of input is a command: its main class, what it reads from standard input, and its arguments,
 * each in Base64 and separated by tabs. The line of output is its exit code, what it
 * wrote to standard output and what it wrote to standard error.
 */
public class ToolHost {
    private static final String SEPARATOR = "\t";
    private static final List<Runnable> HOOKS = new ArrayList<>();

    private final ByteArrayOutputStream out = new ByteArrayOutputStream();
    private final ByteArrayOutputStream err = new ByteArrayOutputStream();
    private Integer exitCode;

    public static void main(String[] arguments) throws IOException {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        PrintStream answers = System.out;
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(new ToolHost().run(line.split(SEPARATOR, -1)));
        }
        System.exit(0);
    }

    private String run(String[] fields) {
        String[] arguments = new String[fields.length - 2];
        for (int index = 0; index < arguments.length; index++) {
            arguments[index] = decoded(fields[index + 2]);
        }
        Exit.setExitProcedure((code, message) -> exit(code));
        Exit.setHaltProcedure((code, message) -> exit(code));
        System.setIn(new ByteArrayInputStream(Base64.getDecoder().decode(fields[1])));
        System.setOut(new PrintStream(out, true));
        System.setErr(new PrintStream(err, true));
        runMain(decoded(fields[0]), arguments);
        return String.join(SEPARATOR, exitCode.toString(), encoded(out), encoded(err));
    }

    private void runMain(String name, String[] arguments) {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (exitCode == null) {
                thrown.getCause().printStackTrace();
                exitCode = 1;
            }
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace();
            exitCode = 1;
        }
        HOOKS.forEach(Runnable::run);
        HOOKS.clear();
        if (exitCode == null) {
            exitCode = 0;
        }
    }

    /** The first exit counts, as in a process of its own; what a tool says afterwards does not. */
    private void exit(int code) {
        if (exitCode == null) {
            exitCode = code;
            HOOKS.forEach(Runnable::run);
            HOOKS.clear();
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(new PrintStream(OutputStream.nullOutputStream()));
        }
        throw new Ended();
    }

    private static String decoded(String field) {
        return new String(Base64.getDecoder().decode(field), StandardCharsets.UTF_8);
    }

    private static String encoded(ByteArrayOutputStream stream) {
        return Base64.getEncoder().encodeToString(stream.toByteArray());
    }

    private static class Ended extends Error {
        private static final long serialVersionUID = 1;
    }
}
