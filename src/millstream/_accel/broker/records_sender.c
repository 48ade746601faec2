/* Answers whose records are in a file; see records_sender.h. */

#include "broker/records_sender.h"

#include <errno.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

int64_t ms_send_region(
    ms_transport *transport, const void *head, int64_t head_size, int file, int64_t position,
    int64_t length, const void *tail, int64_t tail_size)
{
    if (transport->send_file == NULL)
        return 0;
    int64_t sent = transport->send(transport, head, (size_t)head_size, 1);
    if (sent != head_size)
        return sent;
    int64_t more = transport->send_file(transport, file, position, length);
    sent += more;
    if (more == length) {
        more = transport->send(transport, tail, (size_t)tail_size, 0);
        sent += more > 0 ? more : 0;
    }
    return sent;
}

/* Whether the file gave all of them. */
static int ms_read_fully(int file, uint8_t *p, int64_t length, int64_t position)
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

int64_t ms_send_answer(ms_transport *transport, const ms_answer *answer, uint8_t *memory)
{
    int64_t sent;
    if (answer->length > MS_READ_BYTES_MAX) {
        sent = ms_send_region(
            transport, answer->head, answer->head_size, answer->descriptor, answer->position,
            answer->length, answer->tail, answer->tail_size);
    } else {
        uint8_t *records = memory + answer->head_size;
        if (!ms_read_fully(answer->descriptor, records, answer->length, answer->position))
            return 0;
        memcpy(memory, answer->head, (size_t)answer->head_size);
        memcpy(records + answer->length, answer->tail, (size_t)answer->tail_size);
        sent = transport->send(transport, memory, (size_t)ms_answer_size(answer), 0);
    }
    return sent > 0 ? sent : 0;
}
