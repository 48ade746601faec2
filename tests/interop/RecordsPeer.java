import java.io.IOException;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;

/**
 * The Java client's record classes on files, for tests.
 *
 * read IN OUT: describes every IN/*.batch in OUT/*.txt, checksums checked.
 * write IN OUT: writes every IN/*.rows in all formats, codecs and timestamp types to OUT.
 */
public class RecordsPeer {
    private static final HexFormat HEX = HexFormat.of();
    private static final long APPEND_TIME = 1_800_000_000_000L;

    public static void main(String[] arguments) throws IOException {
        Path in = Path.of(arguments[1]);
        Path out = Path.of(arguments[2]);
        if (arguments[0].equals("read")) {
            for (Path batch : filesIn(in, ".batch")) {
                read(batch, out.resolve(nameOf(batch) + ".txt"));
            }
        } else {
            for (Path rows : filesIn(in, ".rows")) {
                writeAll(rows, out);
            }
            writeMarkers(out);
        }
    }

    private static List<Path> filesIn(Path folder, String ending) throws IOException {
        try (Stream<Path> files = Files.list(folder)) {
            return files.filter(file -> file.toString().endsWith(ending)).sorted().collect(Collectors.toList());
        }
    }

    private static String nameOf(Path file) {
        String name = file.getFileName().toString();
        return name.substring(0, name.lastIndexOf('.'));
    }

    private static void read(Path batchFile, Path textFile) throws IOException {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(batchFile)));
        try (PrintWriter text = new PrintWriter(Files.newBufferedWriter(textFile))) {
            for (MutableRecordBatch batch : records.batches()) {
                batch.ensureValid();
                text.println(String.join(" ", "B",
                    "" + batch.baseOffset(), "" + batch.lastOffset(), "" + batch.sizeInBytes(),
                    "" + batch.magic(), "" + batch.compressionType().id, "" + batch.timestampType().id,
                    "" + batch.maxTimestamp(), "" + batch.producerId(), "" + batch.producerEpoch(),
                    "" + batch.baseSequence(), "" + batch.lastSequence(), "" + batch.partitionLeaderEpoch(),
                    "" + batch.isTransactional(), "" + batch.isControlBatch(),
                    batch.deleteHorizonMs().isPresent() ? "" + batch.deleteHorizonMs().getAsLong() : "-"));
                for (Record record : batch) {
                    record.ensureValid();
                    text.println(batch.isControlBatch() ? describeControl(record) : describe(record));
                }
            }
        }
    }

    private static String describe(Record record) {
        StringBuilder line = new StringBuilder("R " + record.offset() + " " + record.timestamp());
        line.append(' ').append(hex(record.key())).append(' ').append(hex(record.value()));
        for (Header header : record.headers()) {
            line.append(' ').append(HEX.formatHex(header.key().getBytes(StandardCharsets.UTF_8)));
            line.append(':').append(header.value() == null ? "-" : HEX.formatHex(header.value()));
        }
        return line.toString();
    }

    private static String describeControl(Record record) {
        EndTransactionMarker marker = EndTransactionMarker.deserialize(record);
        return "C " + record.offset() + " " + record.timestamp() + " "
            + ControlRecordType.parse(record.key()) + " " + marker.coordinatorEpoch();
    }

    private static String hex(ByteBuffer buffer) {
        if (buffer == null) {
            return "-";
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }

    private static void writeAll(Path rowsFile, Path out) throws IOException {
        List<String> rows = Files.readAllLines(rowsFile);
        for (byte magic = 0; magic <= 2; magic++) {
            for (CompressionType codec : CompressionType.values()) {
                if (codec == CompressionType.ZSTD && magic < 2) {
                    continue;
                }
                for (TimestampType type : List.of(TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)) {
                    if (type == TimestampType.LOG_APPEND_TIME && magic == 0) {
                        continue;
                    }
                    String name = nameOf(rowsFile) + "." + magic + "." + codec.name + "." + type.id + ".batch";
                    Files.write(out.resolve(name), write(rows, magic, codec, type));
                }
            }
        }
    }

    private static byte[] write(List<String> rows, byte magic, CompressionType codec, TimestampType type) {
        long appendTime = type == TimestampType.LOG_APPEND_TIME ? APPEND_TIME : -1L;
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1024), magic, Compression.of(codec).build(), type, 500L, appendTime);
        for (String row : rows) {
            String[] fields = row.split(" ", -1);
            List<Header> headers = new ArrayList<>();
            for (int i = 5; i < fields.length && magic == 2; i++) {
                String[] header = fields[i].split(":", -1);
                headers.add(new RecordHeader(
                    new String(HEX.parseHex(header[0]), StandardCharsets.UTF_8), bytes(header[1])));
            }
            builder.append(Long.parseLong(fields[2]), bytes(fields[3]), bytes(fields[4]),
                headers.toArray(new Header[0]));
        }
        return contents(builder.build());
    }

    private static byte[] bytes(String hex) {
        return hex.equals("-") ? null : HEX.parseHex(hex);
    }

    private static byte[] contents(MemoryRecords records) {
        byte[] bytes = new byte[records.sizeInBytes()];
        records.buffer().duplicate().get(bytes);
        return bytes;
    }

    private static void writeMarkers(Path out) throws IOException {
        for (ControlRecordType type : List.of(ControlRecordType.ABORT, ControlRecordType.COMMIT)) {
            EndTransactionMarker marker = new EndTransactionMarker(type, 7);
            MemoryRecords records =
                MemoryRecords.withEndTransactionMarker(40L, 1_700_000_000_000L, 3, 4000L, (short) 5, marker);
            Files.write(out.resolve(type.name() + ".marker"), contents(records));
        }
    }
}
