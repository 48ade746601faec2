/* A thread that receives large frames while the event loop does something else.

   The selector hands connections off to it and gets each back when a frame is complete, when the
   frame has no room in its buffer, when the stream has ended, or after a while: slow peers are the
   loop's. What is handed off nobody else touches. It can be taken back at any time, and when
   ms_receiving_take_back returns the thread does not know it any more; so no descriptor is used after
   it was closed. The thread calls nothing but the transport's receive and poll, knows nothing of
   Python and takes no signals. All hand-offs are under one lock, which nobody holds for longer than
   it takes to look at them. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* for the names of threads */
#endif

#include "broker/frame_receiver.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/types.h>
#include <unistd.h>

#include "clocks.h"
#include "masked_threads.h"
#include "wire.h"

#define MS_HANDOFFS_MAX 64
/* A connection is handed off for so long at most. */
#define MS_HANDOFF_NS 100000000
#define MS_FRAME_SIZE_BYTES 4

enum {
    MS_HANDOFF_NONE,
    MS_HANDOFF_READY,   /* there may be bytes */
    MS_HANDOFF_BUSY,    /* being received, without the lock */
    MS_HANDOFF_WAITING, /* for bytes */
    MS_HANDOFF_DONE     /* to be collected */
};

struct ms_receiving {
    pthread_mutex_t lock;
    pthread_cond_t received; /* none is busy any more */
    pthread_t thread;
    pid_t process;           /* a forked one has no such thread */
    int wake;                /* an eventfd that tells the thread of a hand-off */
    int notify;              /* one that tells the loop that something is done */
    int is_asleep;
    int is_ending;
    int count;
    int done;                /* of these */
    ms_handoff *handoffs[MS_HANDOFFS_MAX]; /* the oldest first */
};

static void ms_eventfd_write(int event)
{
    uint64_t one = 1;
    while (write(event, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static void ms_receiving_finish(ms_receiving *receiving, ms_handoff *handoff, int64_t result)
{
    handoff->result = result;
    handoff->state = MS_HANDOFF_DONE;
    if (receiving->done++ == 0)
        ms_eventfd_write(receiving->notify);
}

/* Where the frame ends as far as that is known: behind its size at first. */
static int64_t ms_handoff_frame_end(const ms_handoff *handoff)
{
    const int64_t size_end = handoff->start + MS_FRAME_SIZE_BYTES;
    if (handoff->end < size_end)
        return size_end;
    return size_end + ms_read_big_endian(handoff->base + handoff->start, MS_FRAME_SIZE_BYTES);
}

/* Receive into the frame, not beyond it: so there is nothing to move before the next one. Whether
   the selector should look at it, as it is complete or has no room. */
static int ms_handoff_receive(ms_handoff *handoff, int64_t *count)
{
    int64_t end = ms_handoff_frame_end(handoff);
    int64_t room = (end < handoff->size ? end : handoff->size) - handoff->end;
    *count = handoff->transport->receive(
        handoff->transport, handoff->base + handoff->end, (size_t)room);
    if (*count <= 0)
        return 0;
    handoff->end += *count;
    end = ms_handoff_frame_end(handoff);
    return handoff->end == end || end > handoff->size;
}

/* One receive without the lock. */
static void ms_receiving_receive(ms_receiving *receiving, ms_handoff *handoff)
{
    int64_t count;
    int is_full;
    handoff->state = MS_HANDOFF_BUSY;
    pthread_mutex_unlock(&receiving->lock);
    is_full = ms_handoff_receive(handoff, &count);
    pthread_mutex_lock(&receiving->lock);
    handoff->state = count == -EAGAIN ? MS_HANDOFF_WAITING : MS_HANDOFF_READY;
    if (is_full)
        ms_receiving_finish(receiving, handoff, 1);
    else if (count <= 0 && count != -EAGAIN && count != -EINTR)
        ms_receiving_finish(receiving, handoff, count);
    pthread_cond_broadcast(&receiving->received);
}

/* What to wait for, behind the first place, and until when; -1 is for ever. */
static int ms_receiving_list_waiting(
    ms_receiving *receiving, struct pollfd *waiting, int *timeout_ms)
{
    int count = 1;
    *timeout_ms = -1;
    for (int i = 0; i < receiving->count; i++) {
        ms_handoff *handoff = receiving->handoffs[i];
        if (handoff->state != MS_HANDOFF_WAITING)
            continue;
        if (count == 1) {
            int64_t left_ns = handoff->deadline_ns - ms_monotonic_ns();
            *timeout_ms = left_ns > 0 ? (int)(left_ns / MS_NS_PER_MS) + 1 : 0;
        }
        handoff->place = count;
        waiting[count++] = (struct pollfd){.fd = handoff->transport->descriptor, .events = POLLIN};
    }
    return count;
}

/* Sleep until bytes arrive, something is handed off, or a hand-off's time is over. */
static void ms_receiving_sleep(ms_receiving *receiving)
{
    struct pollfd waiting[1 + MS_HANDOFFS_MAX] = {{.fd = receiving->wake, .events = POLLIN}};
    uint64_t count_written;
    int timeout_ms, count = ms_receiving_list_waiting(receiving, waiting, &timeout_ms), is_woken;
    receiving->is_asleep = 1;
    pthread_mutex_unlock(&receiving->lock);
    is_woken = poll(waiting, (nfds_t)count, timeout_ms) > 0 && waiting[0].revents;
    if (is_woken && read(receiving->wake, &count_written, sizeof count_written) < 0)
        is_woken = 0;
    pthread_mutex_lock(&receiving->lock);
    receiving->is_asleep = 0;
    int64_t now_ns = ms_monotonic_ns();
    /* What was taken back and handed off again meanwhile does not wait; what waits kept its place. */
    for (int i = 0; i < receiving->count; i++) {
        ms_handoff *handoff = receiving->handoffs[i];
        if (handoff->state != MS_HANDOFF_WAITING)
            continue;
        if (waiting[handoff->place].revents)
            handoff->state = MS_HANDOFF_READY;
        else if (now_ns >= handoff->deadline_ns)
            ms_receiving_finish(receiving, handoff, -EAGAIN);
    }
}

static void *ms_receiving_run(void *argument)
{
    ms_receiving *receiving = argument;
    pthread_mutex_lock(&receiving->lock);
    while (!receiving->is_ending) {
        ms_handoff *next = NULL;
        for (int i = 0; i < receiving->count && next == NULL; i++)
            if (receiving->handoffs[i]->state == MS_HANDOFF_READY)
                next = receiving->handoffs[i];
        if (next != NULL)
            ms_receiving_receive(receiving, next);
        else
            ms_receiving_sleep(receiving);
    }
    pthread_mutex_unlock(&receiving->lock);
    return NULL;
}

static void ms_receiving_free(ms_receiving *receiving)
{
    if (receiving->wake >= 0)
        close(receiving->wake);
    if (receiving->notify >= 0)
        close(receiving->notify);
    free(receiving);
}

ms_receiving *ms_receiving_start(void)
{
    int error = 0;
    ms_receiving *receiving = calloc(1, sizeof *receiving);
    if (receiving == NULL)
        return NULL;
    pthread_mutex_init(&receiving->lock, NULL);
    pthread_cond_init(&receiving->received, NULL);
    receiving->process = getpid();
    receiving->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    receiving->notify = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (receiving->wake < 0 || receiving->notify < 0)
        error = errno;
    if (error == 0)
        error = ms_thread_start(&receiving->thread, ms_receiving_run, receiving, "frame receiver");
    if (error == 0)
        return receiving;
    ms_receiving_free(receiving);
    errno = error;
    return NULL;
}

void ms_receiving_end(ms_receiving *receiving)
{
    if (receiving->process == getpid()) {
        pthread_mutex_lock(&receiving->lock);
        receiving->is_ending = 1;
        pthread_mutex_unlock(&receiving->lock);
        ms_eventfd_write(receiving->wake);
        pthread_join(receiving->thread, NULL);
    }
    ms_receiving_free(receiving);
}

int ms_receiving_hand_off(ms_receiving *receiving, ms_handoff *handoff)
{
    int is_taken, is_asleep;
    if (handoff->end >= handoff->size || handoff->end >= ms_handoff_frame_end(handoff))
        return 0;
    handoff->deadline_ns = ms_monotonic_ns() + MS_HANDOFF_NS;
    pthread_mutex_lock(&receiving->lock);
    is_taken = receiving->count < MS_HANDOFFS_MAX;
    is_asleep = receiving->is_asleep;
    if (is_taken) {
        handoff->state = MS_HANDOFF_READY;
        receiving->handoffs[receiving->count++] = handoff;
        receiving->is_asleep = 0;
    }
    pthread_mutex_unlock(&receiving->lock);
    if (is_taken && is_asleep)
        ms_eventfd_write(receiving->wake);
    return is_taken;
}

static void ms_receiving_remove(ms_receiving *receiving, ms_handoff *handoff)
{
    int i = 0;
    while (receiving->handoffs[i] != handoff)
        i++;
    receiving->count--;
    memmove(
        &receiving->handoffs[i], &receiving->handoffs[i + 1],
        (size_t)(receiving->count - i) * sizeof handoff);
    receiving->done -= handoff->state == MS_HANDOFF_DONE;
    handoff->state = MS_HANDOFF_NONE;
}

void ms_receiving_take_back(ms_receiving *receiving, ms_handoff *handoff)
{
    pthread_mutex_lock(&receiving->lock);
    while (handoff->state == MS_HANDOFF_BUSY)
        pthread_cond_wait(&receiving->received, &receiving->lock);
    ms_receiving_remove(receiving, handoff);
    pthread_mutex_unlock(&receiving->lock);
}

ms_handoff *ms_receiving_collect(ms_receiving *receiving)
{
    ms_handoff *found = NULL;
    pthread_mutex_lock(&receiving->lock);
    for (int i = 0; i < receiving->count && found == NULL; i++)
        if (receiving->handoffs[i]->state == MS_HANDOFF_DONE)
            found = receiving->handoffs[i];
    if (found != NULL)
        ms_receiving_remove(receiving, found);
    pthread_mutex_unlock(&receiving->lock);
    return found;
}

void ms_receiving_renotify(ms_receiving *receiving)
{
    pthread_mutex_lock(&receiving->lock);
    if (receiving->done > 0)
        ms_eventfd_write(receiving->notify);
    pthread_mutex_unlock(&receiving->lock);
}

int ms_receiving_count(const ms_receiving *receiving) { return receiving->count; }
int ms_receiving_eventfd(const ms_receiving *receiving) { return receiving->notify; }
