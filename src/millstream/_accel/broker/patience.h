/* Whether to look for the next request for a moment instead of going to sleep.

   A client with one request in flight sends the next one as soon as it has its answer. On a machine
   that is not busy most of the time between the two is spent falling asleep and waking up, on both
   sides. Who looks for the next request meanwhile need not wake up. That pays only if it comes soon
   and nobody else needs the processor, so it is done only after several came that soon. A vain
   look, or one during which the processor was taken away, costs as much credit as several good
   ones earn; without credit nobody looks for a while: for twice as many requests each time. */

#ifndef MILLSTREAM_PATIENCE_H
#define MILLSTREAM_PATIENCE_H

#include <stdint.h>

#include "clocks.h"
#include "broker/sockets.h"

#define MS_LOOK_NS 100000
/* Between an answer and the next request, with the way to sleep and back. If it comes sooner both
   share one processor, and whoever looks keeps it from the other. */
#define MS_GAP_NS_MIN 20000
#define MS_GAP_NS_MAX 180000
/* One look takes less than a microsecond; after such a pause another one had the processor. */
#define MS_DISTURBED_NS 15000
#define MS_QUICK_MIN 8
#define MS_QUICK_MAX 8192
/* A good look saves half of what a vain one costs, and no more than a fifth may be vain. */
#define MS_CREDIT_VAIN 4
#define MS_CREDIT_MAX 32

typedef struct {
    int64_t answered_ns; /* when the last answer left */
    int quick;           /* requests that came so soon; one that does not halves it */
    int quick_needed;    /* before it is worth to look for the next one */
    int credit;          /* for vain looks, earned by those that were not */
} ms_patience;

/* Somebody was woken up by requests. */
static inline void ms_patience_woken(ms_patience *patience)
{
    int64_t gap = ms_monotonic_ns() - patience->answered_ns;
    int is_soon = gap >= MS_GAP_NS_MIN && gap <= MS_GAP_NS_MAX;
    if (!is_soon)
        patience->quick /= 2;
    else if (patience->quick < MS_QUICK_MAX)
        patience->quick++;
}

/* A single request was answered: whether to look for the next one. */
static inline int ms_patience_answered(ms_patience *patience)
{
    patience->answered_ns = ms_monotonic_ns();
    return patience->quick >= patience->quick_needed;
}

static inline void ms_patience_found(ms_patience *patience)
{
    patience->credit += patience->credit < MS_CREDIT_MAX;
    if (patience->credit >= MS_QUICK_MIN)
        patience->quick_needed = MS_QUICK_MIN;
}

static inline void ms_patience_lost(ms_patience *patience)
{
    patience->credit -= MS_CREDIT_VAIN;
    if (patience->credit >= 0)
        return;
    int more = 2 * patience->quick_needed;
    patience->quick_needed = more < MS_QUICK_MAX ? more : MS_QUICK_MAX;
    patience->quick = patience->credit = 0;
}

/* Who is ready within a moment; 0 if nobody is. */
static inline int ms_patience_look(
    ms_patience *patience, int epoll, ms_event *events, int count)
{
    int64_t before = ms_monotonic_ns(), end = patience->answered_ns + MS_LOOK_NS, now;
    int is_disturbed = 0, ready;
    do {
        ready = ms_epoll_ready(epoll, events, count);
        now = ms_monotonic_ns();
        is_disturbed |= now - before > MS_DISTURBED_NS;
        before = now;
    } while (ready == 0 && now < end && !is_disturbed);
    if (ready <= 0 || is_disturbed)
        ms_patience_lost(patience);
    else
        ms_patience_found(patience);
    return ready;
}

#endif
