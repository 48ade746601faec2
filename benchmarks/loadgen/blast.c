/* A closed-loop load generator that is never the bottleneck.
 *
 *   blast PORT FRAME_FILE RESPONSE_BYTES CONNECTIONS WINDOW SECONDS
 *
 * Each connection keeps WINDOW copies of the frame in flight and counts whole responses by their
 * size alone. One line of JSON: requests, seconds, p50_us, p99_us, cpu_seconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW_MAX = 1024, SAMPLES_MAX = 1 << 22, RECEIVE_BYTES = 4 << 20 };

typedef struct {
    int fd;
    int to_send;          /* frames that may be sent now, the one under way included */
    size_t sent;          /* bytes of the frame under way */
    size_t received;      /* bytes of the response under way */
    double started[WINDOW_MAX];
    unsigned head, tail;
    int waits_to_write;
} Connection;

static uint8_t *frame;
static size_t frame_bytes, response_bytes;
static int epoll_fd;
static uint32_t *samples; /* tenths of microseconds */
static size_t sample_count;
static uint8_t receive_buffer[RECEIVE_BYTES];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void watch(Connection *c, int operation, int writes) {
    struct epoll_event event = {.events = EPOLLIN | (writes ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(epoll_fd, operation, c->fd, &event);
    c->waits_to_write = writes;
}

static void send_frames(Connection *c) {
    while (c->to_send) {
        ssize_t n = send(c->fd, frame + c->sent, frame_bytes - c->sent, 0);
        if (n < 0) {
            if (errno != EAGAIN) fail("send");
            if (!c->waits_to_write) watch(c, EPOLL_CTL_MOD, 1);
            return;
        }
        if (c->sent == 0) {
            c->started[c->head] = now();
            c->head = (c->head + 1) % WINDOW_MAX;
        }
        c->sent += n;
        if (c->sent == frame_bytes) {
            c->sent = 0;
            c->to_send--;
        }
    }
    if (c->waits_to_write) watch(c, EPOLL_CTL_MOD, 0);
}

static size_t take_responses(Connection *c) {
    ssize_t n = recv(c->fd, receive_buffer, RECEIVE_BYTES, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN)) fail("the server closed a connection");
    if (n < 0) return 0;
    size_t count = 0;
    double t = now();
    for (c->received += n; c->received >= response_bytes; c->received -= response_bytes) {
        count++;
        if (sample_count < SAMPLES_MAX) samples[sample_count++] = (t - c->started[c->tail]) * 1e7;
        c->tail = (c->tail + 1) % WINDOW_MAX;
    }
    return count;
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void read_frame(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    fseek(file, 0, SEEK_END);
    frame_bytes = ftell(file);
    rewind(file);
    frame = malloc(frame_bytes);
    if (fread(frame, 1, frame_bytes, file) != frame_bytes) fail(path);
    fclose(file);
}

static void open_connection(Connection *c, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    watch(c, EPOLL_CTL_ADD, 0);
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "blast PORT FRAME_FILE RESPONSE_BYTES CONNECTIONS WINDOW SECONDS\n");
        return 2;
    }
    read_frame(argv[2]);
    response_bytes = atol(argv[3]);
    int connections = atoi(argv[4]), window = atoi(argv[5]);
    samples = malloc(SAMPLES_MAX * sizeof *samples);
    epoll_fd = epoll_create1(0);
    Connection *all = calloc(connections, sizeof *all);
    for (int i = 0; i < connections; i++) open_connection(&all[i], atoi(argv[1]));

    double start = now(), end = start + atof(argv[6]);
    size_t done = 0, outstanding = (size_t)connections * window;
    for (int i = 0; i < connections; i++) {
        all[i].to_send = window;
        send_frames(&all[i]);
    }
    struct epoll_event events[256];
    while (outstanding) {
        int ready = epoll_wait(epoll_fd, events, 256, 5000);
        if (ready == 0) {
            fprintf(stderr, "no answer for 5 s, %zu requests outstanding\n", outstanding);
            return 3;
        }
        for (int i = 0; i < ready; i++) {
            Connection *c = events[i].data.ptr;
            if (events[i].events & ~EPOLLOUT) {
                size_t count = take_responses(c);
                done += count;
                outstanding -= count;
                if (now() < end) {
                    c->to_send += count;
                    outstanding += count;
                }
            }
            if (c->to_send) send_frames(c);
            else if (c->waits_to_write) watch(c, EPOLL_CTL_MOD, 0);
        }
    }
    double seconds = now() - start;
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    qsort(samples, sample_count, sizeof *samples, by_value);
    printf("{\"requests\": %zu, \"seconds\": %.6f, \"p50_us\": %.1f, \"p99_us\": %.1f, "
           "\"cpu_seconds\": %.6f}\n",
           done, seconds, samples[sample_count / 2] / 10.0, samples[sample_count * 99 / 100] / 10.0,
           use.ru_utime.tv_sec + use.ru_stime.tv_sec +
               (use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6);
    return 0;
}
