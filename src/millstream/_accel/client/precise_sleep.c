/* See precise_sleep.h. */

#include "client/precise_sleep.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clocks.h"

#define MS_NS_PER_S INT64_C(1000000000)
#define MS_SLICE_NS 100000

/* As the kernel has it; C libraries know it since recently only. */
typedef struct {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns;
    uint64_t deadline_ns;
    uint64_t period_ns;
} ms_scheduling;

/* The calling thread has little to do, but at once. Since Linux 6.12 a thread that asks for shorter slices than
   others, not for more of them, need not wait for the end of theirs: one that spins in Python
   would else keep its processor for milliseconds. A thread whose policy was set keeps it. */
void ms_ask_for_short_slices(void)
{
    ms_scheduling ours;
    if (syscall(SYS_sched_getattr, 0, &ours, sizeof ours, 0) < 0 || ours.policy != SCHED_OTHER)
        return;
    ours.runtime_ns = MS_SLICE_NS;
    long refused = syscall(SYS_sched_setattr, 0, &ours, 0);
    (void)refused; /* Then it waits as everybody does. */
}

/* In whole milliseconds, rounded up: what ends too early would only sleep again. */
static int ms_sleep_roughly(
    int epoll_fd, struct epoll_event *ready, int ready_max, int64_t sleep_ns)
{
    int64_t sleep_ms = (sleep_ns + MS_NS_PER_MS - 1) / MS_NS_PER_MS;
    return epoll_wait(epoll_fd, ready, ready_max, (int)sleep_ms);
}

/* Linux 5.11 has a finer sleep; older ones, and sandboxes that do not know the call, refuse it. */
static int ms_sleep_exactly(
    int epoll_fd, struct epoll_event *ready, int ready_max, int64_t sleep_ns)
{
#ifdef SYS_epoll_pwait2
    static int is_refused = 0;
    if (!__atomic_load_n(&is_refused, __ATOMIC_RELAXED)) {
        /* What the kernel expects, whatever this C library's time_t is. */
        struct { int64_t seconds, nanoseconds; } sleep = {
            sleep_ns / MS_NS_PER_S, sleep_ns % MS_NS_PER_S};
        long count = syscall(SYS_epoll_pwait2, epoll_fd, ready, ready_max, &sleep, NULL, 0);
        if (count >= 0 || (errno != ENOSYS && errno != EPERM))
            return (int)count;
        __atomic_store_n(&is_refused, 1, __ATOMIC_RELAXED);
    }
#endif
    return ms_sleep_roughly(epoll_fd, ready, ready_max, sleep_ns);
}

int ms_sleep_until(
    int epoll_fd, struct epoll_event *ready, int ready_max, int64_t until_ms)
{
    int64_t now_ns = ms_monotonic_ns();
    int64_t latest_ms = now_ns / MS_NS_PER_MS + MS_SLEEP_MS_MAX;
    int64_t sleep_ns = (until_ms < latest_ms ? until_ms : latest_ms) * MS_NS_PER_MS - now_ns;
    if (sleep_ns <= 0)
        return epoll_wait(epoll_fd, ready, ready_max, 0);
    return ms_sleep_exactly(epoll_fd, ready, ready_max, sleep_ns);
}
