import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Java client against a broker, for tests: COMMAND ADDRESS ARGUMENT...; what it learns, it prints.
 *
 * produce TOPIC COUNT PREFIX KEYS [SETTING=VALUE...]: records to partition 0, stamped 1000, 2000 and
 *     so on unless `stamp=now`; prints the offset of each.
 * consume TOPIC OFFSET [SETTING=VALUE...]: from partition 0 to its end; prints every record.
 * offsets TOPIC TIMESTAMP: what both the consumer and the admin know about offsets.
 * create TOPIC PARTITIONS [CONFIG=VALUE...]: prints what the broker says it has created.
 * topics, producers, directories, cluster: descriptions.
 * grow, settings, alter, trim, move, delete, delete-id: other administration.
 */
public class ClientPeer {
    private final String address;
    private final List<String> arguments;

    private ClientPeer(String address, List<String> arguments) {
        this.address = address;
        this.arguments = arguments;
    }

    public static void main(String[] given) throws Exception {
        ClientPeer peer = new ClientPeer(given[1], List.of(given).subList(2, given.length));
        switch (given[0]) {
            case "produce" -> peer.produce();
            case "consume" -> peer.consume();
            case "offsets" -> peer.offsets();
            default -> peer.administer(given[0]);
        }
    }

    private void produce() throws Exception {
        Properties settings = settings(4);
        boolean isStampedNow = "now".equals(settings.remove("stamp"));
        String topic = arguments.get(0);
        int keys = Integer.parseInt(arguments.get(3));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < Integer.parseInt(arguments.get(1)); number++) {
                Long stamp = isStampedNow ? null : Long.valueOf(1000L * (number + 1));
                String value = arguments.get(2) + number;
                var record = new ProducerRecord<>(topic, 0, stamp, "k" + number % keys, value);
                record.headers().add("number", String.valueOf(number).getBytes(StandardCharsets.UTF_8));
                sent.add(producer.send(record));
            }
        }
        for (Future<RecordMetadata> each : sent) {
            System.out.println(each.get().offset());
        }
    }

    private void consume() {
        TopicPartition partition = new TopicPartition(arguments.get(0), 0);
        Properties settings = settings(2);
        settings.put("enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, Long.parseLong(arguments.get(1)));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                consumer.poll(Duration.ofSeconds(5)).forEach(ClientPeer::print);
            }
        }
    }

    private static void print(ConsumerRecord<String, String> record) {
        String headers = "";
        for (Header header : record.headers()) {
            headers += " " + header.key() + "=" + new String(header.value(), StandardCharsets.UTF_8);
        }
        System.out.println(record.offset() + " " + record.timestamp() + " " + record.timestampType()
            + " " + record.leaderEpoch().orElse(-1) + " " + record.key() + " " + record.value() + headers);
    }

    private void offsets() throws Exception {
        TopicPartition partition = new TopicPartition(arguments.get(0), 0);
        long timestamp = Long.parseLong(arguments.get(1));
        try (var consumer = new KafkaConsumer<>(settings(9), new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(partition)); // or else it warns that it does not watch it
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, timestamp)).get(partition);
            System.out.println("consumer begin " + consumer.beginningOffsets(List.of(partition)).get(partition));
            System.out.println("consumer end " + consumer.endOffsets(List.of(partition)).get(partition));
            System.out.println("consumer time " + (found == null ? null : found.offset() + " " + found.timestamp()));
        }
        Map<String, OffsetSpec> specs = new TreeMap<>(Map.of(
            "earliest", OffsetSpec.earliest(),
            "latest", OffsetSpec.latest(),
            "max-timestamp", OffsetSpec.maxTimestamp(),
            "earliest-local", OffsetSpec.earliestLocal(),
            "latest-tiered", OffsetSpec.latestTiered(),
            "earliest-pending-upload", OffsetSpec.earliestPendingUpload(),
            "time", OffsetSpec.forTimestamp(timestamp)));
        try (Admin admin = Admin.create(settings(9))) {
            for (var each : specs.entrySet()) {
                var found = admin.listOffsets(Map.of(partition, each.getValue())).partitionResult(partition).get();
                System.out.println("admin " + each.getKey() + " " + found.offset() + " " + found.timestamp());
            }
        }
    }

    private void administer(String command) throws Exception {
        try (Admin admin = Admin.create(settings(9))) {
            switch (command) {
                case "create" -> create(admin);
                case "topics" -> describeTopics(admin);
                case "producers" -> describeProducers(admin);
                case "directories" -> describeDirectories(admin);
                case "cluster" -> describeCluster(admin);
                case "settings" -> describeSettings(admin);
                case "alter" -> alter(admin);
                case "grow" -> admin.createPartitions(
                    Map.of(arguments.get(0), NewPartitions.increaseTo(Integer.parseInt(arguments.get(1))))).all().get();
                case "trim" -> System.out.println(trim(admin));
                case "move" -> admin.alterReplicaLogDirs(
                    Map.of(new TopicPartitionReplica(arguments.get(0), 0, 1), arguments.get(1))).all().get();
                case "delete" -> admin.deleteTopics(List.of(arguments.get(0))).all().get();
                case "delete-id" -> admin.deleteTopics(
                    TopicCollection.ofTopicIds(List.of(Uuid.fromString(arguments.get(0))))).all().get();
                default -> throw new IllegalArgumentException(command);
            }
        } catch (ExecutionException failure) {
            throw new RuntimeException(failure.getCause());
        }
    }

    private void create(Admin admin) throws Exception {
        String name = arguments.get(0);
        NewTopic topic = new NewTopic(name, Integer.parseInt(arguments.get(1)), (short) -1).configs(pairs(2));
        CreateTopicsResult created = admin.createTopics(List.of(topic));
        System.out.println("id " + created.topicId(name).get());
        System.out.println("partitions " + created.numPartitions(name).get());
        System.out.println("replication " + created.replicationFactor(name).get());
        created.config(name).get().entries().forEach(ClientPeer::print);
    }

    private void describeTopics(Admin admin) throws Exception {
        var described = admin.describeTopics(arguments).allTopicNames().get();
        for (var topic : new TreeMap<>(described).values()) {
            System.out.println(topic.name() + " " + topic.topicId() + " " + topic.isInternal());
            topic.partitions().forEach(partition -> System.out.println(
                partition.partition() + " leader " + partition.leader().id() + " replicas "
                    + partition.replicas().size() + " isr " + partition.isr().size()
                    + " elr " + partition.elr().size()));
        }
    }

    private void describeProducers(Admin admin) throws Exception {
        TopicPartition partition = new TopicPartition(arguments.get(0), 0);
        for (var each : admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers()) {
            System.out.println(each.producerEpoch() + " " + each.lastSequence() + " " + each.lastTimestamp()
                + " " + each.currentTransactionStartOffset().isPresent());
        }
    }

    private void describeDirectories(Admin admin) throws Exception {
        var described = admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1);
        described.forEach((path, directory) -> directory.replicaInfos().forEach((partition, replica) ->
            System.out.println(path + " " + partition + " " + replica.size() + " " + replica.isFuture())));
        described.forEach((path, directory) -> System.out.println(
            path + " total " + (directory.totalBytes().orElse(-1) > 0) + " error " + directory.error()));
    }

    private void describeCluster(Admin admin) throws Exception {
        var cluster = admin.describeCluster();
        System.out.println("controller " + cluster.controller().get().id());
        System.out.println("nodes " + cluster.nodes().get().stream().map(node -> node.idString())
            .collect(Collectors.joining(",")));
        var quorum = admin.describeMetadataQuorum().quorumInfo().get();
        System.out.println("quorum leader " + quorum.leaderId() + " voters " + quorum.voters().size());
        new TreeMap<>(admin.describeFeatures().featureMetadata().get().finalizedFeatures()).forEach(
            (name, levels) -> System.out.println("feature " + name + " " + levels.maxVersionLevel()));
        admin.listConfigResources().all().get().stream().map(resource -> "resource " + resource.type() + " " + resource.name())
            .sorted().forEach(System.out::println);
        System.out.println("listed " + String.join(",", admin.listTopics().names().get().stream().sorted().toList()));
    }

    private void describeSettings(Admin admin) throws Exception {
        var resource = resource();
        admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().forEach(ClientPeer::print);
    }

    private void alter(Admin admin) throws Exception {
        Collection<AlterConfigOp> changes = new ArrayList<>();
        for (String change : arguments.subList(2, arguments.size())) {
            String[] parts = change.split(" ", 3);
            var kind = AlterConfigOp.OpType.valueOf(parts[0]);
            changes.add(new AlterConfigOp(new ConfigEntry(parts[1], parts.length > 2 ? parts[2] : null), kind));
        }
        admin.incrementalAlterConfigs(Map.of(resource(), changes)).all().get();
    }

    private long trim(Admin admin) throws Exception {
        TopicPartition partition = new TopicPartition(arguments.get(0), 0);
        var before = RecordsToDelete.beforeOffset(Long.parseLong(arguments.get(1)));
        return admin.deleteRecords(Map.of(partition, before)).lowWatermarks().get(partition).get().lowWatermark();
    }

    private ConfigResource resource() {
        return new ConfigResource(ConfigResource.Type.valueOf(arguments.get(0)), arguments.get(1));
    }

    private static void print(ConfigEntry entry) {
        System.out.println(entry.name() + "=" + entry.value() + " " + entry.source() + " " + entry.isReadOnly());
    }

    private Map<String, String> pairs(int from) {
        Map<String, String> pairs = new HashMap<>();
        for (String pair : arguments.subList(Math.min(from, arguments.size()), arguments.size())) {
            pairs.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        return pairs;
    }

    private Properties settings(int from) {
        Properties settings = new Properties();
        settings.putAll(pairs(from));
        settings.put("bootstrap.servers", address);
        return settings;
    }
}
