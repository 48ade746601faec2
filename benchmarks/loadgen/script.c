/* Plays requests that are written down, and compares the answers with what is written beside them:
 * the load of benchmarks/coordinator.py.
 *
 *   script PORT FILE WINDOW UNIT SECONDS
 *
 * FILE, all numbers big-endian and of 4 bytes: how many connections; for each the number of its
 * steps and then the steps, each a request, its answer, and the answer after which a client would
 * try again: whole frames with their size, the last perhaps empty. The correlation ids in them do
 * not matter: each connection counts its own. A connection has WINDOW
 * requests in flight and begins no UNIT of them after SECONDS; one that is begun is completed. With
 * WINDOW 1 it stops at the end of its steps, for they follow from one another; else it begins again.
 *
 * An answer that differs in any byte ends the program; with WINDOW 1 a step is repeated, at once, if
 * the broker asks for it. One line of JSON: requests, retries, seconds, percentiles in us,
 * cpu_seconds of this side, and how many steps each connection has made.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW_MAX = 64, BUFFER_BYTES = 64 << 10, SAMPLES_MAX = 1 << 22, STALL_MS = 20000 };

typedef struct {
    uint8_t *request, *answer, *not_yet;
} Step;

typedef struct {
    int fd;
    Step *steps;
    uint32_t step_count;
    uint32_t begun, done;           /* requests; also their correlation ids */
    double started[WINDOW_MAX];
    uint8_t buffer[BUFFER_BYTES];
    size_t received;
} Connection;

static Connection *all;
static uint32_t connection_count, window, unit;
static uint32_t *tenths;            /* of microseconds */
static size_t sample_count, retries;
static int epoll_fd;

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

static uint32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return be32toh(v); }
static void put32(uint8_t *p, uint32_t v) { v = htobe32(v); memcpy(p, &v, 4); }
static size_t frame_size(const uint8_t *frame) { return 4 + (size_t)get32(frame); }

static uint8_t *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail("%s: %s", path, strerror(errno));
    fseek(file, 0, SEEK_END);
    size_t size = ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(size);
    if (fread(bytes, 1, size, file) != size) fail("%s: cannot be read", path);
    fclose(file);
    return bytes;
}

static void read_script(const char *path) {
    uint8_t *p = read_file(path);
    connection_count = get32(p);
    p += 4;
    all = calloc(connection_count, sizeof *all);
    for (uint32_t i = 0; i < connection_count; i++) {
        Connection *c = &all[i];
        c->step_count = get32(p);
        p += 4;
        c->steps = malloc(c->step_count * sizeof *c->steps);
        for (uint32_t s = 0; s < c->step_count; s++) {
            c->steps[s].request = p;
            p += frame_size(p);
            c->steps[s].answer = p;
            p += frame_size(p);
            c->steps[s].not_yet = p;
            p += frame_size(p);
        }
    }
}

static void open_connection(Connection *c, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address))
        fail("connect to port %d: %s", port, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event);
}

/* Requests are small and few are in flight: a send that blocks would be the broker's fault. */
static int send_next(Connection *c) {
    if (window == 1 && c->begun == c->step_count) return 0;
    uint8_t *request = c->steps[c->begun % c->step_count].request;
    size_t size = frame_size(request);
    put32(request + 8, c->begun);
    c->started[c->begun++ % WINDOW_MAX] = now();
    if (send(c->fd, request, size, MSG_NOSIGNAL) != (ssize_t)size)
        fail("send: %s", strerror(errno));
    return 1;
}

static int is_same(const uint8_t *found, const uint8_t *wanted) {
    size_t size = frame_size(found);
    return size == frame_size(wanted) && !memcmp(found + 8, wanted + 8, size - 8);
}

/* Whether the answer is the one; if not, the step has to be made again. */
static int compare(Connection *c, const uint8_t *found, size_t size) {
    const Step *step = &c->steps[c->done % c->step_count];
    const uint8_t *wanted = step->answer;
    if (get32(found + 4) != c->done) fail("answers out of order");
    if (is_same(found, wanted)) return 1;
    if (window == 1 && is_same(found, step->not_yet)) return 0;
    fprintf(stderr, "step %u of connection %ld: not the answer\n  found ", c->done, (long)(c - all));
    for (size_t i = 8; i < size; i++) fprintf(stderr, "%02x", found[i]);
    fprintf(stderr, "\n  wanted ");
    for (size_t i = 8; i < frame_size(wanted); i++) fprintf(stderr, "%02x", wanted[i]);
    fail("");
    return 0;
}

static uint32_t take_answers(Connection *c) {
    ssize_t n = recv(c->fd, c->buffer + c->received, BUFFER_BYTES - c->received, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) fail("the broker closed a connection: %s", n ? strerror(errno) : "end of stream");
    c->received += n;
    uint32_t count = 0;
    size_t at = 0;
    double t = now();
    while (c->received - at >= 8) {
        size_t size = frame_size(c->buffer + at);
        if (size > BUFFER_BYTES) fail("an answer of %zu bytes", size);
        if (c->received - at < size) break;
        int is_done = compare(c, c->buffer + at, size);
        at += size;
        if (!is_done) {
            retries++;
            c->begun = c->done;
            send_next(c);
            continue;
        }
        if (sample_count < SAMPLES_MAX)
            tenths[sample_count++] = (t - c->started[c->done % WINDOW_MAX]) * 1e7;
        c->done++;
        count++;
    }
    c->received -= at;
    memmove(c->buffer, c->buffer + at, c->received);
    return count;
}

static double run(double seconds) {
    double start = now(), end = start + seconds;
    size_t outstanding = 0;
    for (uint32_t i = 0; i < connection_count; i++)
        for (uint32_t w = 0; w < window; w++) outstanding += send_next(&all[i]);
    struct epoll_event events[256];
    while (outstanding) {
        int ready = epoll_wait(epoll_fd, events, 256, STALL_MS);
        if (ready == 0) fail("no answer for %d ms, %zu outstanding", STALL_MS, outstanding);
        for (int i = 0; i < ready; i++) {
            Connection *c = events[i].data.ptr;
            uint32_t count = take_answers(c);
            outstanding -= count;
            int goes_on = now() < end;
            for (; count && (goes_on || c->begun % unit); count--) outstanding += send_next(c);
        }
    }
    return now() - start;
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void report(double seconds) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    qsort(tenths, sample_count, sizeof *tenths, by_value);
    printf("{\"requests\": %zu, \"retries\": %zu, \"seconds\": %.6f, \"p50_us\": %.1f, "
           "\"p99_us\": %.1f, ",
           sample_count, retries, seconds, tenths[sample_count / 2] / 10.0,
           tenths[sample_count * 99 / 100] / 10.0);
    printf("\"cpu_seconds\": %.6f, \"steps\": [",
           use.ru_utime.tv_sec + use.ru_stime.tv_sec +
               (use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6);
    for (uint32_t i = 0; i < connection_count; i++) printf("%s%u", i ? ", " : "", all[i].done);
    printf("]}\n");
}

int main(int argc, char **argv) {
    if (argc != 6) fail("script PORT FILE WINDOW UNIT SECONDS; more at the top of script.c");
    epoll_fd = epoll_create1(0);
    tenths = malloc(SAMPLES_MAX * sizeof *tenths);
    window = atoi(argv[3]);
    unit = atoi(argv[4]);
    if (!unit || !window || window > WINDOW_MAX) fail("a window of 1 to %d", WINDOW_MAX);
    read_script(argv[2]);
    for (uint32_t i = 0; i < connection_count; i++) open_connection(&all[i], atoi(argv[1]));
    report(run(atof(argv[5])));
    return 0;
}
