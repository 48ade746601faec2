/* Threads that take no signals. Called with the GIL, by the owner of the thread. */

#include "masked_threads.h"

#include <signal.h>

int ms_thread_start(pthread_t *thread, void *(*run)(void *), void *argument, const char *name)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        pthread_setname_np(*thread, name);
    return error;
}
