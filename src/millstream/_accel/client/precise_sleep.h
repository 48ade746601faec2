/* What makes a selector's loop be on time: it asks for short scheduler slices, and sleeps until
   a moment, not some whole milliseconds longer. */

#ifndef MILLSTREAM_PRECISE_SLEEP_H
#define MILLSTREAM_PRECISE_SLEEP_H

#include <stdint.h>
#include <sys/epoll.h>

#define MS_SLEEP_MS_MAX 3600000

/* For the calling thread. */
void ms_ask_for_short_slices(void);
/* Until something happens, or it is `until_ms` by the monotonic clock; for a past time not at all.
   What is later than an hour ends after one. */
int ms_sleep_until(int epoll_fd, struct epoll_event *ready, int ready_max, int64_t until_ms);

#endif
