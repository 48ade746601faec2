/* Threads that know nothing of Python and take no signals: those are the interpreter's. */

#ifndef MILLSTREAM_MASKED_THREADS_H
#define MILLSTREAM_MASKED_THREADS_H

#include <pthread.h>

/* Start one, with a name of up to 15 letters that `top -H` shows; 0 or an errno. */
int ms_thread_start(
    pthread_t *thread, void *(*run)(void *), void *argument, const char *name);

#endif
