/* The floor: the system calls a broker needs to receive frames and answer them, nothing else.
 *
 *   floor ANSWER_FILE [FILE FILE_BYTES | LOG_DIRECTORY]
 *
 * Answers every request with the bytes of ANSWER_FILE, in which only the correlation id is set, and,
 * if a file is given, with FILE_BYTES of it by sendfile. With a directory, what a read brings is
 * first written to one of four files there, as it is. Prints its port, runs until its standard input
 * ends.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 256 * 1024,
    PENDING_MAX = 1 << 20,
    ANSWER_MAX = 4096,
    LOGS = 4,
    ID_AT_REQUEST = 8, /* where correlation ids are, after the size */
    ID_AT_ANSWER = 4
};

typedef struct {
    int fd, log;
    uint8_t *buffer;
    size_t capacity, start, end;
} Connection;

typedef struct {
    int fd;
    off_t size;
} Log;

static uint8_t template[ANSWER_MAX], answers[PENDING_MAX];
static size_t answer_bytes, answers_end, file_bytes;
static int file_fd = -1, accepted;
static Log logs[LOGS];
static const char *log_directory;

static void wait_writable(int fd) {
    struct pollfd waiter = {.fd = fd, .events = POLLOUT};
    poll(&waiter, 1, 5000);
}

static void send_answers(int fd, int flags) {
    for (size_t sent = 0; sent < answers_end;) {
        ssize_t n = send(fd, answers + sent, answers_end - sent, flags | MSG_NOSIGNAL);
        if (n > 0) sent += n;
        else if (errno == EAGAIN) wait_writable(fd);
        else break;
    }
    answers_end = 0;
}

static void send_file(int fd) {
    off_t position = 0;
    while ((size_t)position < file_bytes) {
        ssize_t n = sendfile(fd, file_fd, &position, file_bytes - position);
        if (n < 0 && errno == EAGAIN) wait_writable(fd);
        else if (n <= 0) return;
    }
}

/* Small answers of one read go out together; those with a file go out one by one. */
static void answer(int fd, const uint8_t *request) {
    if (answers_end + answer_bytes > PENDING_MAX) send_answers(fd, 0);
    memcpy(answers + answers_end, template, answer_bytes);
    memcpy(answers + answers_end + ID_AT_ANSWER, request + ID_AT_REQUEST, 4);
    answers_end += answer_bytes;
    if (file_fd >= 0) {
        send_answers(fd, MSG_MORE);
        send_file(fd);
    }
}

static void open_logs(void) {
    for (int i = 0; i < LOGS; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%d.log", log_directory, i);
        logs[i].fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    }
}

static void append(Log *log, const uint8_t *bytes, size_t size) {
    if (pwrite(log->fd, bytes, size, log->size) != (ssize_t)size) {
        perror("a log cannot be written");
        exit(1);
    }
    log->size += size;
}

static void make_room(Connection *c, size_t frame) {
    size_t rest = c->end - c->start;
    if (frame > c->capacity) {
        uint8_t *larger = malloc(frame);
        memcpy(larger, c->buffer + c->start, rest);
        free(c->buffer);
        c->buffer = larger;
        c->capacity = frame;
    } else {
        memmove(c->buffer, c->buffer + c->start, rest);
    }
    c->start = 0;
    c->end = rest;
}

static int serve(Connection *c) {
    ssize_t n = recv(c->fd, c->buffer + c->end, c->capacity - c->end, 0);
    if (n <= 0) return n < 0 && errno == EAGAIN;
    c->end += n;
    size_t first = c->start, wanted = 0;
    while (c->end - c->start >= 4) {
        uint32_t size;
        memcpy(&size, c->buffer + c->start, 4);
        size_t frame = 4 + (size_t)ntohl(size);
        if (c->end - c->start < frame) {
            wanted = frame;
            break;
        }
        answer(c->fd, c->buffer + c->start);
        c->start += frame;
    }
    if (log_directory && c->start > first) append(&logs[c->log], c->buffer + first, c->start - first);
    if (answers_end) send_answers(c->fd, 0);
    if (c->start == c->end) c->start = c->end = 0;
    else if (c->start + wanted > c->capacity) make_room(c, wanted);
    else if (c->end == c->capacity) make_room(c, 0);
    return 1;
}

static void add(int epoll_fd, int fd, void *context) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = context};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static void accept_one(int epoll_fd, int listener) {
    int one = 1;
    Connection *c = calloc(1, sizeof *c);
    c->fd = accept4(listener, 0, 0, SOCK_NONBLOCK);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->capacity = BUFFER_BYTES;
    c->buffer = malloc(c->capacity);
    c->log = accepted++ % LOGS;
    add(epoll_fd, c->fd, c);
}

static void read_template(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file) {
        answer_bytes = fread(template, 1, ANSWER_MAX, file);
        fclose(file);
    }
    if (answer_bytes < 8) {
        fprintf(stderr, "%s holds no answer\n", path);
        exit(1);
    }
}

int main(int argc, char **argv) {
    static Connection control;
    if (argc < 2) {
        fprintf(stderr, "floor ANSWER_FILE [FILE FILE_BYTES | LOG_DIRECTORY]\n");
        return 2;
    }
    read_template(argv[1]);
    if (argc > 3) {
        file_fd = open(argv[2], O_RDONLY);
        file_bytes = atol(argv[3]);
    } else if (argc == 3) {
        log_directory = argv[2];
        open_logs();
    }
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll_fd = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    bind(listener, (struct sockaddr *)&address, length);
    listen(listener, 128);
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    add(epoll_fd, listener, NULL);
    add(epoll_fd, STDIN_FILENO, &control);
    for (;;) {
        struct epoll_event events[64];
        int ready = epoll_wait(epoll_fd, events, 64, -1);
        for (int i = 0; i < ready; i++) {
            Connection *c = events[i].data.ptr;
            if (c == &control) return 0;
            if (c == NULL) accept_one(epoll_fd, listener);
            else if (!serve(c)) {
                close(c->fd);
                free(c->buffer);
                free(c);
            }
        }
    }
}
