/* Threads that know nothing of Python and take no signals: those are the interpreter's. */

#ifndef MILLSTREAM_QUIET_THREADS_H
#define MILLSTREAM_QUIET_THREADS_H

#include <pthread.h>
#include <signal.h>

/* Start one, with a name of up to 15 letters that `top -H` shows; 0 or an errno. */
static inline int ms_thread_start(
    pthread_t *thread, void *(*run)(void *), void *argument, const char *name)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
#ifdef __linux__
    if (error == 0)
        pthread_setname_np(*thread, name);
#else
    (void)name;
#endif
    return error;
}

#endif
