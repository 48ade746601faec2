/* A thread that receives large frames while the event loop does something else.

   The loop lends it sockets (bulk_loan.h) and gets each back when a frame is complete, when the frame
   has no room in its buffer, when the stream has ended, or after a while: slow peers are the loop's.
   What is lent nobody else touches. It can be had back at any time, and when ms_bulk_recall returns
   the thread does not know it any more; so no descriptor is used after it was closed. The thread
   calls nothing but recv, poll and the lender's check, knows nothing of Python and takes no signals.
   All loans are under one lock, which nobody holds for longer than it takes to look at them. */

#ifndef MILLSTREAM_BULK_RECEIVER_H
#define MILLSTREAM_BULK_RECEIVER_H

#include "broker/bulk_loan.h"
#include "clocks.h"
#include "quiet_threads.h"
#include "broker/sockets.h"
#include "wire.h"

#ifdef __linux__

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#define MS_LOANS_MAX 64
/* A socket is lent for so long at most. */
#define MS_LOAN_NS 100000000
#define MS_LOAN_SIZE_BYTES 4

enum {
    MS_LOAN_NONE,
    MS_LOAN_READY,   /* there may be bytes */
    MS_LOAN_BUSY,    /* being received, without the lock */
    MS_LOAN_WAITING, /* for bytes */
    MS_LOAN_DONE     /* to be collected */
};

struct ms_bulk {
    pthread_mutex_t lock;
    pthread_cond_t received; /* nobody is busy any more */
    pthread_t thread;
    pid_t process;           /* a forked one has no such thread */
    int wake;                /* tells the thread that something was lent */
    int news;                /* tells the loop that something is done */
    int is_asleep;
    int is_ending;
    int count;
    int done;                /* of these */
    ms_loan *loans[MS_LOANS_MAX]; /* the oldest first */
};

static void ms_bulk_tell(int event)
{
    uint64_t one = 1;
    while (write(event, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static void ms_bulk_finish(ms_bulk *bulk, ms_loan *loan, int64_t result)
{
    loan->result = result;
    loan->state = MS_LOAN_DONE;
    if (bulk->done++ == 0)
        ms_bulk_tell(bulk->news);
}

/* Where the frame ends as far as that is known: behind its size at first. */
static int64_t ms_loan_frame_end(const ms_loan *loan)
{
    const int64_t size_end = loan->start + MS_LOAN_SIZE_BYTES;
    if (loan->end < size_end)
        return size_end;
    return size_end + ms_read_big_endian(loan->base + loan->start, MS_LOAN_SIZE_BYTES);
}

/* Receive into the frame, not beyond it: so there is nothing to move before the next one. Whether
   the lender should look at it, as it is complete or has no room. */
static int ms_loan_receive(ms_loan *loan, int64_t *count)
{
    int64_t end = ms_loan_frame_end(loan);
    int64_t room = (end < loan->size ? end : loan->size) - loan->end;
    *count = ms_receive(loan->descriptor, loan->base + loan->end, (size_t)room);
    if (*count <= 0)
        return 0;
    loan->end += *count;
    end = ms_loan_frame_end(loan);
    if (loan->end == end && loan->check != NULL)
        loan->checked = loan->check(loan->base + loan->start, end - loan->start);
    return loan->end == end || end > loan->size;
}

/* One recv without the lock. */
static void ms_bulk_receive(ms_bulk *bulk, ms_loan *loan)
{
    int64_t count;
    int is_full;
    loan->state = MS_LOAN_BUSY;
    pthread_mutex_unlock(&bulk->lock);
    is_full = ms_loan_receive(loan, &count);
    pthread_mutex_lock(&bulk->lock);
    loan->state = count == -EAGAIN ? MS_LOAN_WAITING : MS_LOAN_READY;
    if (is_full)
        ms_bulk_finish(bulk, loan, 1);
    else if (count <= 0 && count != -EAGAIN && count != -EINTR)
        ms_bulk_finish(bulk, loan, count);
    pthread_cond_broadcast(&bulk->received);
}

/* Whom to wait for, behind the first place, and until when; -1 is for ever. */
static int ms_bulk_list_waiting(ms_bulk *bulk, struct pollfd *waiting, int *timeout_ms)
{
    int count = 1;
    *timeout_ms = -1;
    for (int i = 0; i < bulk->count; i++) {
        ms_loan *loan = bulk->loans[i];
        if (loan->state != MS_LOAN_WAITING)
            continue;
        if (count == 1) {
            int64_t left_ns = loan->deadline_ns - ms_monotonic_ns();
            *timeout_ms = left_ns > 0 ? (int)(left_ns / MS_NS_PER_MS) + 1 : 0;
        }
        loan->place = count;
        waiting[count++] = (struct pollfd){.fd = loan->descriptor, .events = POLLIN};
    }
    return count;
}

/* Sleep until bytes arrive, something is lent, or somebody's time is over. */
static void ms_bulk_sleep(ms_bulk *bulk)
{
    struct pollfd waiting[1 + MS_LOANS_MAX] = {{.fd = bulk->wake, .events = POLLIN}};
    uint64_t told;
    int timeout_ms, count = ms_bulk_list_waiting(bulk, waiting, &timeout_ms), is_told;
    bulk->is_asleep = 1;
    pthread_mutex_unlock(&bulk->lock);
    is_told = poll(waiting, (nfds_t)count, timeout_ms) > 0 && waiting[0].revents;
    if (is_told && read(bulk->wake, &told, sizeof told) < 0)
        is_told = 0;
    pthread_mutex_lock(&bulk->lock);
    bulk->is_asleep = 0;
    int64_t now_ns = ms_monotonic_ns();
    /* Who was recalled and lent again meanwhile does not wait; who waits has kept its place. */
    for (int i = 0; i < bulk->count; i++) {
        ms_loan *loan = bulk->loans[i];
        if (loan->state != MS_LOAN_WAITING)
            continue;
        if (waiting[loan->place].revents)
            loan->state = MS_LOAN_READY;
        else if (now_ns >= loan->deadline_ns)
            ms_bulk_finish(bulk, loan, -EAGAIN);
    }
}

static void *ms_bulk_run(void *argument)
{
    ms_bulk *bulk = argument;
    pthread_mutex_lock(&bulk->lock);
    while (!bulk->is_ending) {
        ms_loan *next = NULL;
        for (int i = 0; i < bulk->count && next == NULL; i++)
            if (bulk->loans[i]->state == MS_LOAN_READY)
                next = bulk->loans[i];
        if (next != NULL)
            ms_bulk_receive(bulk, next);
        else
            ms_bulk_sleep(bulk);
    }
    pthread_mutex_unlock(&bulk->lock);
    return NULL;
}

static void ms_bulk_free(ms_bulk *bulk)
{
    if (bulk->wake >= 0)
        close(bulk->wake);
    if (bulk->news >= 0)
        close(bulk->news);
    free(bulk);
}

/* NULL, with errno set, if there can be none. */
static ms_bulk *ms_bulk_start(void)
{
    int error = 0;
    ms_bulk *bulk = calloc(1, sizeof *bulk);
    if (bulk == NULL)
        return NULL;
    pthread_mutex_init(&bulk->lock, NULL);
    pthread_cond_init(&bulk->received, NULL);
    bulk->process = getpid();
    bulk->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    bulk->news = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (bulk->wake < 0 || bulk->news < 0)
        error = errno;
    if (error == 0)
        error = ms_thread_start(&bulk->thread, ms_bulk_run, bulk, "bulk receiver");
    if (error == 0)
        return bulk;
    ms_bulk_free(bulk);
    errno = error;
    return NULL;
}

/* End the thread; what is lent still is the lender's with that. */
static void ms_bulk_end(ms_bulk *bulk)
{
    if (bulk->process == getpid()) {
        pthread_mutex_lock(&bulk->lock);
        bulk->is_ending = 1;
        pthread_mutex_unlock(&bulk->lock);
        ms_bulk_tell(bulk->wake);
        pthread_join(bulk->thread, NULL);
    }
    ms_bulk_free(bulk);
}

/* Lend a socket; 0 if too many are lent already, or there is nothing to receive into. */
static int ms_bulk_lend(ms_bulk *bulk, ms_loan *loan)
{
    int is_lent, is_asleep;
    if (loan->end >= loan->size || loan->end >= ms_loan_frame_end(loan))
        return 0;
    loan->checked = 0;
    loan->deadline_ns = ms_monotonic_ns() + MS_LOAN_NS;
    pthread_mutex_lock(&bulk->lock);
    is_lent = bulk->count < MS_LOANS_MAX;
    is_asleep = bulk->is_asleep;
    if (is_lent) {
        loan->state = MS_LOAN_READY;
        bulk->loans[bulk->count++] = loan;
        bulk->is_asleep = 0;
    }
    pthread_mutex_unlock(&bulk->lock);
    if (is_lent && is_asleep)
        ms_bulk_tell(bulk->wake);
    return is_lent;
}

static void ms_bulk_remove(ms_bulk *bulk, ms_loan *loan)
{
    int i = 0;
    while (bulk->loans[i] != loan)
        i++;
    bulk->count--;
    memmove(&bulk->loans[i], &bulk->loans[i + 1], (size_t)(bulk->count - i) * sizeof loan);
    bulk->done -= loan->state == MS_LOAN_DONE;
    loan->state = MS_LOAN_NONE;
}

/* Have one back now; it takes a recv at most. */
static void ms_bulk_recall(ms_bulk *bulk, ms_loan *loan)
{
    pthread_mutex_lock(&bulk->lock);
    while (loan->state == MS_LOAN_BUSY)
        pthread_cond_wait(&bulk->received, &bulk->lock);
    ms_bulk_remove(bulk, loan);
    pthread_mutex_unlock(&bulk->lock);
}

/* The oldest one that is done, NULL if none is. */
static ms_loan *ms_bulk_collect(ms_bulk *bulk)
{
    ms_loan *found = NULL;
    pthread_mutex_lock(&bulk->lock);
    for (int i = 0; i < bulk->count && found == NULL; i++)
        if (bulk->loans[i]->state == MS_LOAN_DONE)
            found = bulk->loans[i];
    if (found != NULL)
        ms_bulk_remove(bulk, found);
    pthread_mutex_unlock(&bulk->lock);
    return found;
}

/* What was left behind is news again. */
static void ms_bulk_remind(ms_bulk *bulk)
{
    pthread_mutex_lock(&bulk->lock);
    if (bulk->done > 0)
        ms_bulk_tell(bulk->news);
    pthread_mutex_unlock(&bulk->lock);
}

static int ms_bulk_count(const ms_bulk *bulk) { return bulk->count; }
static int ms_bulk_news(const ms_bulk *bulk) { return bulk->news; }

#else

static ms_bulk *ms_bulk_start(void) { errno = ENOSYS; return NULL; }
static void ms_bulk_end(ms_bulk *bulk) { (void)bulk; }
static int ms_bulk_lend(ms_bulk *bulk, ms_loan *loan) { (void)bulk, (void)loan; return 0; }
static void ms_bulk_recall(ms_bulk *bulk, ms_loan *loan) { (void)bulk, (void)loan; }
static ms_loan *ms_bulk_collect(ms_bulk *bulk) { (void)bulk; return NULL; }
static void ms_bulk_remind(ms_bulk *bulk) { (void)bulk; }
static int ms_bulk_count(const ms_bulk *bulk) { (void)bulk; return 0; }
static int ms_bulk_news(const ms_bulk *bulk) { (void)bulk; return -1; }

#endif

#endif
