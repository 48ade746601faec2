/* Kafka clients reduced to their system calls: the load of benchmarks/broker.py.
 *
 *   clients produce PORT FRAME_FILE CONNECTIONS WINDOW SECONDS REQUESTS_MAX
 *   clients fetch   PORT TOPIC_ID PARTITIONS CONNECTIONS BYTES END_OFFSET SECONDS REQUESTS_MAX
 *   clients follow  PORT TOPIC_ID FRAME_FILE START_OFFSET COUNT PAUSE_US
 *
 * produce: closed loop. FRAME_FILE holds whole Produce v13 requests of one partition each;
 *   connection i sends the (i modulo their number)th again and again, WINDOW of them in flight.
 *   REQUESTS_MAX, not below WINDOW, is for each connection, here and below.
 * fetch: closed loop of Fetch v18 in a session, as a consumer reads: connection i follows partition
 *   i modulo PARTITIONS by the offsets it gets, and begins again at END_OFFSET.
 * follow: a producer and a consumer that waits in a long poll for each record, one after another.
 *
 * Every answer's correlation id, error code and offsets are checked; a wrong one ends the program.
 * One line of JSON: requests, records, bytes, seconds, percentiles in us, cpu_seconds of this side.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    WINDOW_MAX = 64,
    SAMPLES_MAX = 1 << 22,
    FRAMES_MAX = 256,
    HEADER_BYTES = 12,       /* size, API key, version, correlation id: what differs by request */
    FETCH_REQUEST_BYTES = 256,
    ANSWERS_BYTES = 16 << 10,        /* of Produce, a few dozen; of Fetch, what comes before records */
    RECORDS_BYTES = 128 << 10,       /* records are received here, by all: it stays in the cache */
    FETCH_HEAD_BYTES = 20,           /* of an answer to Fetch, up to the number of topics */
    PARTITION_HEAD_BYTES = 56,       /* from there to the records, which an empty answer has too */
    BATCH_HEADER_BYTES = 61,
    STALL_MS = 20000
};

typedef struct {
    const uint8_t *bytes;
    size_t size;
} Frame;

typedef struct {
    int fd, waits_to_write;
    int to_send;                    /* requests that may be sent now, the one under way included */
    size_t begun;                   /* requests so far, those to send included */
    size_t sent;                    /* bytes of the one under way */
    Frame frame;                    /* what is sent, after its header */
    uint8_t header[HEADER_BYTES];
    uint32_t next_id, expected_id;  /* correlation ids; also the ring of start times */
    double started[WINDOW_MAX];
    uint8_t answers[ANSWERS_BYTES]; /* received and not yet looked at; of records only headers */
    size_t received;
    /* A fetching connection only. */
    size_t wanted, skip;            /* bytes to look at next; bytes to drop before that */
    size_t answer_left, records_left;
    int64_t next_offset;            /* after the last whole batch so far */
    uint8_t request[FETCH_REQUEST_BYTES];
    uint32_t partition, session_id, session_epoch, answered_id;
    int64_t offset, session_offset; /* to ask for; what the session believes */
} Connection;

typedef size_t (*TakeAnswers)(Connection *c);

static Frame frames[FRAMES_MAX];
static size_t frame_count;
static uint8_t topic_id[16];
static uint32_t fetch_bytes, fetch_partitions;
static int64_t end_offset;
static int epoll_fd;
static size_t done, records, record_bytes;
static uint8_t records_buffer[RECORDS_BYTES];

typedef struct {
    uint32_t *tenths; /* of microseconds */
    size_t count;
} Samples;
static Samples latency, arrival;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    exit(1);
}

static uint16_t get16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return be16toh(v); }
static uint32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return be32toh(v); }
static int64_t get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return be64toh(v); }
static uint8_t *put16(uint8_t *p, uint16_t v) { v = htobe16(v); memcpy(p, &v, 2); return p + 2; }
static uint8_t *put32(uint8_t *p, uint32_t v) { v = htobe32(v); memcpy(p, &v, 4); return p + 4; }
static uint8_t *put64(uint8_t *p, uint64_t v) { v = htobe64(v); memcpy(p, &v, 8); return p + 8; }

static void sample(Samples *samples, double seconds) {
    if (!samples->tenths) samples->tenths = malloc(SAMPLES_MAX * sizeof *samples->tenths);
    if (samples->count < SAMPLES_MAX) samples->tenths[samples->count++] = seconds * 1e7;
}

/* Requests. */

static void read_frames(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail("%s: %s", path, strerror(errno));
    fseek(file, 0, SEEK_END);
    size_t size = ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(size);
    if (fread(bytes, 1, size, file) != size) fail("%s: cannot be read", path);
    fclose(file);
    for (size_t at = 0; at < size && frame_count < FRAMES_MAX; frame_count++) {
        frames[frame_count] = (Frame){bytes + at, 4 + get32(bytes + at)};
        at += frames[frame_count].size;
    }
}

static void read_topic_id(const char *hex) {
    for (int i = 0; i < 16; i++)
        if (sscanf(hex + 2 * i, "%2hhx", &topic_id[i]) != 1) fail("%s: no topic id", hex);
}

/* A consumer names the partition again only if its offset is not what the session knows. */
static void build_fetch(Connection *c) {
    uint8_t *p = c->request + 4;
    p = put16(put16(p, 1), 18);                       /* Fetch, version 18 */
    p = put32(p, 0);                                  /* the correlation id goes into the header */
    p = put16(p, 5);
    memcpy(p, "bench", 5);
    p += 5;
    *p++ = 0;
    p = put32(put32(put32(p, 500), 1), 50 << 20);     /* a Java consumer's wait and limits */
    *p++ = 0;
    p = put32(put32(p, c->session_id), c->session_epoch);
    int is_named = !c->session_id || c->offset != c->session_offset;
    *p++ = is_named + 1;
    if (is_named) {
        memcpy(p, topic_id, 16);
        p += 16;
        *p++ = 2;
        p = put32(put32(p, c->partition), -1);
        p = put64(put32(put64(p, c->offset), -1), -1);
        p = put32(p, fetch_bytes);
        *p++ = 0;
        *p++ = 0;
    }
    *p++ = 1;                                         /* nothing forgotten, no rack, no tags */
    *p++ = 1;
    *p++ = 0;
    c->session_offset = c->offset;
    put32(c->request, p - c->request - 4);
    c->frame = (Frame){c->request, p - c->request};
}

static void watch(Connection *c, int operation, int writes) {
    struct epoll_event event = {.events = EPOLLIN | (writes ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(epoll_fd, operation, c->fd, &event);
    c->waits_to_write = writes;
}

static void begin_request(Connection *c) {
    memcpy(c->header, c->frame.bytes, HEADER_BYTES);
    put32(c->header + 8, c->next_id);
    c->started[c->next_id++ % WINDOW_MAX] = now();
}

static void send_requests(Connection *c) {
    while (c->to_send) {
        if (c->sent == 0) begin_request(c);
        struct iovec parts[2];
        struct msghdr message = {.msg_iov = parts};
        if (c->sent < HEADER_BYTES)
            parts[message.msg_iovlen++] = (struct iovec){c->header + c->sent, HEADER_BYTES - c->sent};
        size_t body = c->sent < HEADER_BYTES ? HEADER_BYTES : c->sent;
        parts[message.msg_iovlen++] =
            (struct iovec){(void *)(c->frame.bytes + body), c->frame.size - body};
        ssize_t n = sendmsg(c->fd, &message, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno != EAGAIN) fail("send: %s", strerror(errno));
            if (c->sent == 0) c->next_id--;
            if (!c->waits_to_write) watch(c, EPOLL_CTL_MOD, 1);
            return;
        }
        c->sent += n;
        if (c->sent == c->frame.size) {
            c->sent = 0;
            c->to_send--;
        }
    }
    if (c->waits_to_write) watch(c, EPOLL_CTL_MOD, 0);
}

/* Answers to Produce: short, several in one read. */

static void check_produced(const uint8_t *answer, size_t size) {
    if (size < 41 || answer[9] != 2 || answer[26] != 2) fail("not an answer to one partition");
    if (get16(answer + 31)) fail("produce failed with error %d", (int16_t)get16(answer + 31));
    if (get64(answer + 33) < 0) fail("produce answered without an offset");
}

static ssize_t receive(Connection *c, void *buffer, size_t size) {
    ssize_t n = recv(c->fd, buffer, size, 0);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) fail("the broker closed a connection: %s", n ? strerror(errno) : "end of stream");
    return n;
}

static void answered(Connection *c, uint32_t correlation_id, double t) {
    if (correlation_id != c->expected_id) fail("answers out of order");
    sample(&latency, t - c->started[c->expected_id++ % WINDOW_MAX]);
}

static size_t take_acks(Connection *c) {
    c->received += receive(c, c->answers + c->received, ANSWERS_BYTES - c->received);
    size_t count = 0, at = 0;
    double t = now();
    while (c->received - at >= 8) {
        size_t size = 4 + (size_t)get32(c->answers + at);
        if (size > ANSWERS_BYTES) fail("an answer of %zu bytes", size);
        if (c->received - at < size) break;
        answered(c, get32(c->answers + at + 4), t);
        check_produced(c->answers + at, size);
        count++;
        at += size;
    }
    c->received -= at;
    if (at && c->received) memmove(c->answers, c->answers + at, c->received);
    return count;
}

/* Answers to Fetch: headers are collected and checked, records dropped as they come. */

static void expect_answer(Connection *c) {
    c->received = c->skip = 0;
    c->wanted = FETCH_HEAD_BYTES;
    c->next_offset = c->offset;
}

/* What follows is a batch, or what is left of the answer is of no interest. */
static void expect_batch(Connection *c) {
    int is_whole = c->records_left >= BATCH_HEADER_BYTES;
    c->wanted = is_whole ? BATCH_HEADER_BYTES : 0;
    if (!is_whole) c->skip += c->answer_left - c->received;
}

static void check_fetch_head(Connection *c) {
    const uint8_t *answer = c->answers;
    if (get16(answer + 13)) fail("fetch failed with error %d", (int16_t)get16(answer + 13));
    c->answer_left = 4 + (size_t)get32(answer) - FETCH_HEAD_BYTES;
    c->answered_id = get32(answer + 4);
    c->session_id = get32(answer + 15);
    c->session_epoch = c->session_id ? c->session_epoch + 1 : 0;
    c->wanted = answer[19] > 1 ? FETCH_HEAD_BYTES + PARTITION_HEAD_BYTES : 0;
    if (!c->wanted) c->skip = c->answer_left;
}

static void check_partition_head(Connection *c) {
    const uint8_t *answer = c->answers;
    if (answer[36] != 2) fail("not an answer about one partition");
    if (get16(answer + 41)) fail("fetch of a partition failed: %d", (int16_t)get16(answer + 41));
    if (answer[67] > 1) fail("aborted transactions where there are none");
    size_t at = 72, length = 0;
    for (int shift = 0;; shift += 7) {
        length |= (size_t)(answer[at] & 0x7f) << shift;
        if (!(answer[at++] & 0x80)) break;
    }
    c->answer_left -= at - FETCH_HEAD_BYTES;
    c->records_left = length ? length - 1 : 0;
    record_bytes += c->records_left;
    if (c->records_left > c->answer_left) fail("records longer than their answer");
    c->received -= at;
    memmove(c->answers, answer + at, c->received);
    expect_batch(c);
}

static void check_batch(Connection *c) {
    const uint8_t *batch = c->answers;
    size_t size = 12 + (size_t)get32(batch + 8);
    if (batch[16] != 2) fail("a batch of magic %d", batch[16]);
    int is_whole = size <= c->records_left;
    if (is_whole) {
        if (get64(batch) != c->next_offset)
            fail("a batch at %ld, not %ld", (long)get64(batch), (long)c->next_offset);
        c->next_offset += get32(batch + 23) + 1;
    } else {
        size = c->records_left;
    }
    c->records_left -= size;
    c->answer_left -= size;
    c->skip = size - BATCH_HEADER_BYTES;
    c->received = 0;
    expect_batch(c);
}

/* Feeds what was received; the answer is complete when nothing is wanted and nothing is skipped. */
static int feed(Connection *c, const uint8_t *p, size_t n) {
    while (n) {
        size_t taken = c->skip < n ? c->skip : n;
        c->skip -= taken;
        p += taken;
        n -= taken;
        if (c->skip || !c->wanted) break;
        taken = c->wanted - c->received < n ? c->wanted - c->received : n;
        memcpy(c->answers + c->received, p, taken);
        c->received += taken;
        p += taken;
        n -= taken;
        if (c->received < c->wanted) break;
        if (c->wanted == FETCH_HEAD_BYTES) check_fetch_head(c);
        else if (c->wanted == BATCH_HEADER_BYTES) check_batch(c);
        else check_partition_head(c);
    }
    if (n) fail("more than one answer to one fetch");
    return !c->wanted && !c->skip;
}

static size_t take_records(Connection *c) {
    ssize_t n = receive(c, records_buffer, RECORDS_BYTES);
    if (!n || !feed(c, records_buffer, n)) return 0;
    answered(c, c->answered_id, now());
    records += c->next_offset - c->offset;
    c->offset = end_offset && c->next_offset >= end_offset ? 0 : c->next_offset;
    expect_answer(c);
    return 1;
}

static size_t take_records_and_ask_again(Connection *c) {
    size_t before = records;
    if (!take_records(c)) return 0;
    if (records == before) fail("an answer without records at offset %ld", (long)c->offset);
    build_fetch(c);
    return 1;
}

/* Connections. */

static void open_connection(Connection *c, int port, int64_t offset) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address))
        fail("connect to port %d: %s", port, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->offset = c->session_offset = offset;
    expect_answer(c);
    watch(c, EPOLL_CTL_ADD, 0);
}

static double run(Connection *all, int connections, int window, double seconds, size_t requests_max,
                  TakeAnswers take) {
    double start = now(), end = start + seconds;
    size_t outstanding = (size_t)connections * window;
    for (int i = 0; i < connections; i++) {
        all[i].to_send = all[i].begun = window;
        send_requests(&all[i]);
    }
    struct epoll_event events[256];
    while (outstanding) {
        int ready = epoll_wait(epoll_fd, events, 256, STALL_MS);
        if (ready == 0) fail("no answer for %d ms, %zu outstanding", STALL_MS, outstanding);
        for (int i = 0; i < ready; i++) {
            Connection *c = events[i].data.ptr;
            if (events[i].events & ~EPOLLOUT) {
                size_t count = take(c);
                done += count;
                outstanding -= count;
                if (count && now() < end) {
                    if (count > requests_max - c->begun) count = requests_max - c->begun;
                    c->begun += count;
                    outstanding += count;
                    c->to_send += count;
                }
            }
            send_requests(c);
        }
    }
    return now() - start;
}

/* The consumer must be waiting before the producer sends, hence the pause. */
static double follow(Connection *producer, Connection *consumer, int count, int pause_us) {
    double start = now();
    struct pollfd waiters[2] = {{producer->fd, POLLIN, 0}, {consumer->fd, POLLIN, 0}};
    int64_t expected = consumer->offset;
    for (int i = 0; i < count; i++, expected++) {
        build_fetch(consumer);
        consumer->to_send = 1;
        send_requests(consumer);
        usleep(pause_us);
        producer->to_send = 1;
        send_requests(producer);
        double sent = producer->started[(producer->next_id - 1) % WINDOW_MAX];
        for (int acked = 0, came = 0; !acked || !came;) {
            if (poll(waiters, 2, STALL_MS) <= 0) fail("no answer for %d ms", STALL_MS);
            if (waiters[0].revents && take_acks(producer)) acked = 1;
            size_t acks = latency.count; /* how long a fetch waited says nothing here */
            if (waiters[1].revents && take_records(consumer)) {
                latency.count = acks;
                came = consumer->offset > expected;
                if (came) sample(&arrival, now() - sent);
                else {
                    build_fetch(consumer);
                    consumer->to_send = 1;
                    send_requests(consumer);
                }
            }
        }
        done++;
    }
    return now() - start;
}

/* The report. */

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void print_percentiles(const char *name, Samples *samples) {
    if (!samples->count) return;
    qsort(samples->tenths, samples->count, sizeof *samples->tenths, by_value);
    printf("\"%sp50_us\": %.1f, \"%sp99_us\": %.1f, ", name,
           samples->tenths[samples->count / 2] / 10.0, name,
           samples->tenths[samples->count * 99 / 100] / 10.0);
}

static void report(double seconds) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    printf("{\"requests\": %zu, \"records\": %zu, \"bytes\": %zu, \"seconds\": %.6f, ", done,
           records, record_bytes, seconds);
    print_percentiles("", &latency);
    print_percentiles("arrival_", &arrival);
    printf("\"cpu_seconds\": %.6f}\n",
           use.ru_utime.tv_sec + use.ru_stime.tv_sec +
               (use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6);
}

static double run_produce(char **argv) {
    int port = atoi(argv[2]), connections = atoi(argv[4]), window = atoi(argv[5]);
    read_frames(argv[3]);
    if (window > WINDOW_MAX) fail("a window of at most %d", WINDOW_MAX);
    Connection *all = calloc(connections, sizeof *all);
    for (int i = 0; i < connections; i++) {
        open_connection(&all[i], port, 0);
        all[i].frame = frames[i % frame_count];
    }
    return run(all, connections, window, atof(argv[6]), atol(argv[7]), take_acks);
}

static double run_fetch(char **argv) {
    int port = atoi(argv[2]), connections = atoi(argv[5]);
    read_topic_id(argv[3]);
    fetch_partitions = atoi(argv[4]);
    fetch_bytes = atol(argv[6]);
    end_offset = atol(argv[7]);
    Connection *all = calloc(connections, sizeof *all);
    for (int i = 0; i < connections; i++) {
        open_connection(&all[i], port, 0);
        all[i].partition = i % fetch_partitions;
        build_fetch(&all[i]);
    }
    return run(all, connections, 1, atof(argv[8]), atol(argv[9]), take_records_and_ask_again);
}

static double run_follow(char **argv) {
    int port = atoi(argv[2]);
    static Connection producer, consumer;
    read_topic_id(argv[3]);
    read_frames(argv[4]);
    fetch_bytes = 1 << 20;
    open_connection(&producer, port, 0);
    open_connection(&consumer, port, atol(argv[5]));
    producer.frame = frames[0];
    return follow(&producer, &consumer, atoi(argv[6]), atoi(argv[7]));
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    epoll_fd = epoll_create1(0);
    if (!strcmp(what, "produce") && argc == 8) report(run_produce(argv));
    else if (!strcmp(what, "fetch") && argc == 10) report(run_fetch(argv));
    else if (!strcmp(what, "follow") && argc == 8) report(run_follow(argv));
    else fail("clients produce|fetch|follow ...; the arguments are at the top of clients.c");
    return 0;
}
