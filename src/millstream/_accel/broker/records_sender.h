/* Bytes, records from a file and bytes again to a socket; for selector.pyx and file_sender.pyx.

   Nothing waits and nothing is kept: who calls goes on where this ends. */

#ifndef MILLSTREAM_RECORDS_SENDER_H
#define MILLSTREAM_RECORDS_SENDER_H

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/sockets.h"

#ifdef __linux__
#include <sys/sendfile.h>
#endif
#ifndef MSG_MORE
#define MSG_MORE 0
#endif

/* Records up to this size are read and leave with one call; larger ones are sent from their file. */
#define MS_READ_BYTES_MAX (96 * 1024)
#define MS_ANSWER_HEAD_MAX 96
#define MS_ANSWER_TAIL_MAX 8
#define MS_ANSWER_MEMORY (MS_READ_BYTES_MAX + MS_ANSWER_HEAD_MAX + MS_ANSWER_TAIL_MAX)

/* An answer whose records are in a file. */
typedef struct {
    uint8_t head[MS_ANSWER_HEAD_MAX];
    uint8_t tail[MS_ANSWER_TAIL_MAX];
    int64_t head_size;
    int64_t tail_size;
    int64_t position;
    int64_t length;
    int descriptor;
} ms_answer;

static inline int64_t ms_answer_size(const ms_answer *answer)
{
    return answer->head_size + answer->length + answer->tail_size;
}

/* How many bytes were sent, or -1. */
static inline int64_t ms_send_bytes(int socket, const void *data, size_t size, int flags)
{
    ssize_t sent;
    do
        sent = send(socket, data, size, flags | MS_SEND_FLAGS);
    while (sent < 0 && errno == EINTR);
    return (int64_t)sent;
}

/* How many bytes were sent before the socket was full or something was wrong. */
static inline int64_t ms_send_file(int socket, int file, int64_t position, int64_t length)
{
#ifdef __linux__
    off_t at = (off_t)position;
    while (at < position + length) {
        ssize_t sent = sendfile(socket, file, &at, (size_t)(position + length - at));
        if (sent == 0 || (sent < 0 && errno != EINTR))
            break;
    }
    return (int64_t)at - position;
#else
    return 0;
#endif
}

/* How many bytes of the three were sent; -1 if not even the first could be. */
static inline int64_t ms_send_region(
    int socket, const void *head, int64_t head_size, int file, int64_t position, int64_t length,
    const void *tail, int64_t tail_size)
{
    int64_t sent = ms_send_bytes(socket, head, (size_t)head_size, MSG_MORE);
    if (sent != head_size)
        return sent;
    int64_t more = ms_send_file(socket, file, position, length);
    sent += more;
    if (more == length) {
        more = ms_send_bytes(socket, tail, (size_t)tail_size, 0);
        sent += more > 0 ? more : 0;
    }
    return sent;
}

/* Whether the file gave all of them. */
static inline int ms_read_fully(int file, uint8_t *p, int64_t length, int64_t position)
{
    int64_t got = 0;
    while (got < length) {
        ssize_t count = pread(file, p + got, (size_t)(length - got), (off_t)(position + got));
        if (count == 0 || (count < 0 && errno != EINTR))
            return 0;
        got += count > 0 ? count : 0;
    }
    return 1;
}

/* How many bytes of an answer were sent; `memory` has room for MS_ANSWER_MEMORY bytes. What is
   wrong with the file or the peer shows when somebody tries to send the rest. */
static inline int64_t ms_send_answer(int socket, const ms_answer *answer, uint8_t *memory)
{
    int64_t sent;
    if (answer->length > MS_READ_BYTES_MAX) {
        sent = ms_send_region(
            socket, answer->head, answer->head_size, answer->descriptor, answer->position,
            answer->length, answer->tail, answer->tail_size);
    } else {
        uint8_t *records = memory + answer->head_size;
        if (!ms_read_fully(answer->descriptor, records, answer->length, answer->position))
            return 0;
        memcpy(memory, answer->head, (size_t)answer->head_size);
        memcpy(records + answer->length, answer->tail, (size_t)answer->tail_size);
        sent = ms_send_bytes(socket, memory, (size_t)ms_answer_size(answer), 0);
    }
    return sent > 0 ? sent : 0;
}

#endif
