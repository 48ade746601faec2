/* Answers whose records are in a file, sent through a transport. */

#ifndef MILLSTREAM_RECORDS_SENDER_H
#define MILLSTREAM_RECORDS_SENDER_H

#include "broker/transport.h"

/* Records up to this size are read and leave with one call; larger ones are sent from their file. */
#define MS_READ_BYTES_MAX (96 * 1024)
#define MS_ANSWER_HEAD_MAX 96
#define MS_ANSWER_TAIL_MAX 8
#define MS_ANSWER_MEMORY (MS_READ_BYTES_MAX + MS_ANSWER_HEAD_MAX + MS_ANSWER_TAIL_MAX)

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

/* How many bytes of an answer were sent; `memory` has room for MS_ANSWER_MEMORY bytes. What is wrong
   with the file or the peer shows when the rest is sent. */
int64_t ms_send_answer(ms_transport *transport, const ms_answer *answer, uint8_t *memory);

/* How many bytes of the three were sent; -errno if not even the first could be. */
int64_t ms_send_region(
    ms_transport *transport, const void *head, int64_t head_size, int file, int64_t position,
    int64_t length, const void *tail, int64_t tail_size);

#endif
