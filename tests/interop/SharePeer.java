import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * The Java share consumer against a broker, for tests: COMMAND ADDRESS GROUP TOPIC ARGUMENT...
 *
 * consume COUNT [SETTING=VALUE...]: acknowledges implicitly; prints every record.
 * explicit COUNT TYPES [SETTING=VALUE...]: acknowledges the records in turn with the types, a letter
 *     each: a(ccept), (re)l(ease), r(eject), n (renew, then accept); prints every delivery.
 * together MEMBERS COUNT [SETTING=VALUE...]: several members at once; prints member and record.
 * idle MILLISECONDS [SETTING=VALUE...]: polls; prints every record that comes.
 */
public class SharePeer {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long PATIENCE_MS = 60_000;
    private static final Map<Character, AcknowledgeType> TYPES = Map.of(
        'a', AcknowledgeType.ACCEPT,
        'l', AcknowledgeType.RELEASE,
        'r', AcknowledgeType.REJECT,
        'n', AcknowledgeType.RENEW);

    private final String address;
    private final String group;
    private final String topic;
    private final List<String> arguments;

    private SharePeer(String[] given) {
        this.address = given[1];
        this.group = given[2];
        this.topic = given[3];
        this.arguments = List.of(given).subList(4, given.length);
    }

    public static void main(String[] given) throws Exception {
        SharePeer peer = new SharePeer(given);
        switch (given[0]) {
            case "consume" -> peer.consume();
            case "explicit" -> peer.explicit();
            case "together" -> peer.together();
            case "idle" -> peer.idle();
            default -> throw new IllegalArgumentException(given[0]);
        }
    }

    private void consume() {
        int count = Integer.parseInt(arguments.get(0));
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        int seen = 0;
        try (var consumer = consumer(1, "implicit")) {
            while (seen < count && System.currentTimeMillis() < deadline) {
                for (var record : consumer.poll(POLL)) {
                    System.out.println(describe(record));
                    seen++;
                }
            }
            consumer.commitSync();
        }
    }

    private void explicit() {
        int count = Integer.parseInt(arguments.get(0));
        String types = arguments.get(1);
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        int seen = 0;
        try (var consumer = consumer(2, "explicit")) {
            while (seen < count && System.currentTimeMillis() < deadline) {
                List<ConsumerRecord<String, String>> renewed = new ArrayList<>();
                for (var record : consumer.poll(POLL)) {
                    System.out.println(describe(record));
                    char type = types.charAt(seen++ % types.length());
                    consumer.acknowledge(record, TYPES.get(type));
                    if (type == 'n') {
                        renewed.add(record);
                    }
                }
                failures(consumer);
                if (!renewed.isEmpty()) {
                    for (var record : consumer.poll(POLL)) {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                    }
                    failures(consumer);
                }
            }
        }
    }

    private void together() throws Exception {
        int members = Integer.parseInt(arguments.get(0));
        int count = Integer.parseInt(arguments.get(1));
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        var lines = new ConcurrentLinkedQueue<String>();
        var seen = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < members; number++) {
            int member = number;
            Thread thread = new Thread(() -> {
                try (var consumer = consumer(2, "implicit")) {
                    while (seen.get() < count && System.currentTimeMillis() < deadline) {
                        for (var record : consumer.poll(POLL)) {
                            lines.add(member + " " + describe(record));
                            seen.incrementAndGet();
                        }
                    }
                    consumer.commitSync();
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        lines.forEach(System.out::println);
    }

    private void idle() {
        long deadline = System.currentTimeMillis() + Long.parseLong(arguments.get(0));
        try (var consumer = consumer(1, "implicit")) {
            while (System.currentTimeMillis() < deadline) {
                for (var record : consumer.poll(POLL)) {
                    System.out.println(describe(record));
                }
            }
        }
    }

    private static void failures(KafkaShareConsumer<String, String> consumer) {
        consumer.commitSync().forEach((partition, error) ->
            error.ifPresent(each -> System.out.println("failed " + partition + " " + each)));
    }

    private static String describe(ConsumerRecord<String, String> record) {
        return record.partition() + " " + record.offset() + " "
            + record.deliveryCount().map(String::valueOf).orElse("-") + " " + record.value();
    }

    private KafkaShareConsumer<String, String> consumer(int from, String mode) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("group.id", group);
        settings.put("share.acknowledgement.mode", mode);
        for (String setting : arguments.subList(from, arguments.size())) {
            String[] parts = setting.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }
}
