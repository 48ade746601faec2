/* For a test: while the file that SLOW_SENDMSG names is there, `sendmsg` takes its time after it has
   begun, and a second file, of the same name and ".in", tells that a thread is in it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    ssize_t (*send_now)(int, const struct msghdr *, int) =
        (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
    const char *path = getenv("SLOW_SENDMSG");
    ssize_t sent = send_now(fd, message, flags);
    if (path && access(path, F_OK) == 0) {
        char inside[4096];
        snprintf(inside, sizeof inside, "%s.in", path);
        FILE *made = fopen(inside, "w");
        if (made)
            fclose(made);
        while (access(path, F_OK) == 0)
            usleep(1000);
    }
    return sent;
}
