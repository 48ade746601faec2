/* Writes to several files at a time: a thread takes some of them off the caller's hands.

   One thread has what to write, calls ms_writers_run and gets it all done when that returns, so for
   whoever calls it is as if the writes came one after the other. A helper takes the next write that
   nobody has begun, as the caller does; if it wakes up too late the caller has done them all. What
   is written belongs to one of the two at a time. The helper calls nothing but pwritev, knows
   nothing of Python and takes no signals. */

#ifndef MILLSTREAM_LOG_WRITERS_H
#define MILLSTREAM_LOG_WRITERS_H

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "clocks.h"
#include "broker/files.h"
#include "quiet_threads.h"

/* For so long the caller looks whether the helper is done before it sleeps. */
#define MS_AWAKE_NS 50000

/* Parts that go to one file, at a position. */
typedef struct {
    int descriptor;
    int count;
    struct iovec *parts;
    int64_t position;
    int error; /* 0, or an errno: some prefix may be written then */
} ms_write;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t begun;    /* there is something to write */
    pthread_cond_t finished; /* the helper has written what it took */
    pthread_t thread;
    pid_t process;           /* a forked one has no such thread */
    ms_write *next;          /* the first that nobody has taken */
    ms_write *end;
    int is_helping;
    int is_ending;
} ms_writers;

static inline void ms_write_now(ms_write *write)
{
    write->error = ms_write_parts(
        write->descriptor, write->parts, write->count, write->position);
}

static inline void *ms_writers_help(void *argument)
{
    ms_writers *writers = argument;
    pthread_mutex_lock(&writers->lock);
    while (!writers->is_ending) {
        if (writers->next == writers->end) {
            pthread_cond_wait(&writers->begun, &writers->lock);
            continue;
        }
        ms_write *write = writers->next++;
        writers->is_helping = 1;
        pthread_mutex_unlock(&writers->lock);
        ms_write_now(write);
        pthread_mutex_lock(&writers->lock);
        __atomic_store_n(&writers->is_helping, 0, __ATOMIC_RELEASE);
        pthread_cond_signal(&writers->finished);
    }
    pthread_mutex_unlock(&writers->lock);
    return NULL;
}

/* NULL, with errno set, if there can be none. */
static inline ms_writers *ms_writers_start(void)
{
    ms_writers *writers = calloc(1, sizeof *writers);
    if (writers == NULL)
        return NULL;
    pthread_mutex_init(&writers->lock, NULL);
    pthread_cond_init(&writers->begun, NULL);
    pthread_cond_init(&writers->finished, NULL);
    writers->process = getpid();
    int error = ms_thread_start(&writers->thread, ms_writers_help, writers, "log writer");
    if (error == 0)
        return writers;
    free(writers);
    errno = error;
    return NULL;
}

static inline void ms_writers_end(ms_writers *writers)
{
    if (writers->process == getpid()) {
        pthread_mutex_lock(&writers->lock);
        writers->is_ending = 1;
        pthread_cond_signal(&writers->begun);
        pthread_mutex_unlock(&writers->lock);
        pthread_join(writers->thread, NULL);
    }
    free(writers);
}

/* The helper has one write to finish at most: falling asleep and waking up would take longer. */
static inline void ms_writers_await(ms_writers *writers)
{
    const int64_t end_ns = ms_monotonic_ns() + MS_AWAKE_NS;
    while (__atomic_load_n(&writers->is_helping, __ATOMIC_ACQUIRE) && ms_monotonic_ns() < end_ns)
        ;
    pthread_mutex_lock(&writers->lock);
    while (writers->is_helping)
        pthread_cond_wait(&writers->finished, &writers->lock);
    pthread_mutex_unlock(&writers->lock);
}

/* Write all of them, each to a file of its own; when it returns each has its `error`. */
static inline void ms_writers_run(ms_writers *writers, ms_write *writes, int count)
{
    pthread_mutex_lock(&writers->lock);
    writers->next = writes;
    writers->end = writes + count;
    pthread_cond_signal(&writers->begun);
    while (writers->next < writers->end) {
        ms_write *write = writers->next++;
        pthread_mutex_unlock(&writers->lock);
        ms_write_now(write);
        pthread_mutex_lock(&writers->lock);
    }
    pthread_mutex_unlock(&writers->lock);
    ms_writers_await(writers);
}

#endif
