/* Whether to spin for the next request for a moment instead of going to sleep; see busy_poll.c. */

#ifndef MILLSTREAM_BUSY_POLL_H
#define MILLSTREAM_BUSY_POLL_H

#include <stdint.h>

#include "broker/epoll.h"

typedef struct {
    int64_t answered_ns; /* when the last answer left */
    int quick;           /* requests that came soon; one that does not halves it */
    int quick_needed;    /* before it pays to spin for the next one */
    int balance;         /* of spins that found a request against those that did not */
} ms_busy_poll;

void ms_busy_poll_init(ms_busy_poll *poll);

/* Requests have ended the loop's sleep. */
void ms_busy_poll_woken(ms_busy_poll *poll);

/* A single request was answered: whether to spin for the next one. */
int ms_busy_poll_answered(ms_busy_poll *poll);

/* Which descriptors become ready within a moment; 0 if none does. */
int ms_busy_poll_spin(ms_busy_poll *poll, int epoll, ms_event *events, int count);

#endif
