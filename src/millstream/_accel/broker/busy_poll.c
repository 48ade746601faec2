/* Adaptive busy polling.

   A client with one request in flight sends the next one as soon as it has its answer. On a machine
   that is not busy most of the time between the two is spent falling asleep and waking up, on both
   sides. A broker that spins for the next request meanwhile need not wake up. That pays only if the
   request comes soon and nobody else needs the processor, so it is done only after several came that
   soon. A spin in vain, or one during which the processor was taken away, costs as much of the
   balance as several good ones earn; below zero there is no spinning for a while: for twice as many
   requests each time. */

#include "broker/busy_poll.h"

#include "clocks.h"

#define MS_SPIN_NS 100000
/* Between an answer and the next request, with the way to sleep and back. If it comes sooner both
   share one processor, and a broker that spins keeps it from the client. */
#define MS_GAP_NS_MIN 20000
#define MS_GAP_NS_MAX 180000
/* One poll takes less than a microsecond; after such a pause another process had the processor. */
#define MS_DISTURBED_NS 15000
#define MS_QUICK_MIN 8
#define MS_QUICK_MAX 8192
/* A good spin saves half of what a vain one costs, and no more than a fifth may be vain. */
#define MS_BALANCE_VAIN 4
#define MS_BALANCE_MAX 32

void ms_busy_poll_init(ms_busy_poll *poll) { *poll = (ms_busy_poll){.quick_needed = MS_QUICK_MIN}; }

void ms_busy_poll_woken(ms_busy_poll *poll)
{
    int64_t gap = ms_monotonic_ns() - poll->answered_ns;
    int is_soon = gap >= MS_GAP_NS_MIN && gap <= MS_GAP_NS_MAX;
    if (!is_soon)
        poll->quick /= 2;
    else if (poll->quick < MS_QUICK_MAX)
        poll->quick++;
}

int ms_busy_poll_answered(ms_busy_poll *poll)
{
    poll->answered_ns = ms_monotonic_ns();
    return poll->quick >= poll->quick_needed;
}

static void ms_busy_poll_found(ms_busy_poll *poll)
{
    poll->balance += poll->balance < MS_BALANCE_MAX;
    if (poll->balance >= MS_QUICK_MIN)
        poll->quick_needed = MS_QUICK_MIN;
}

static void ms_busy_poll_lost(ms_busy_poll *poll)
{
    poll->balance -= MS_BALANCE_VAIN;
    if (poll->balance >= 0)
        return;
    int more = 2 * poll->quick_needed;
    poll->quick_needed = more < MS_QUICK_MAX ? more : MS_QUICK_MAX;
    poll->quick = poll->balance = 0;
}

int ms_busy_poll_spin(ms_busy_poll *poll, int epoll, ms_event *events, int count)
{
    int64_t before = ms_monotonic_ns(), end = poll->answered_ns + MS_SPIN_NS, now;
    int is_disturbed = 0, ready;
    do {
        ready = ms_epoll_ready(epoll, events, count);
        now = ms_monotonic_ns();
        is_disturbed |= now - before > MS_DISTURBED_NS;
        before = now;
    } while (ready == 0 && now < end && !is_disturbed);
    if (ready <= 0 || is_disturbed)
        ms_busy_poll_lost(poll);
    else
        ms_busy_poll_found(poll);
    return ready;
}
