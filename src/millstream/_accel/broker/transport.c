/* Plain sockets as transports; see transport.h. */

#include "broker/transport.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/sendfile.h>

#define MS_SEND_FLAGS (MSG_DONTWAIT | MSG_NOSIGNAL)

static int64_t ms_plain_receive(ms_transport *transport, void *buffer, size_t size)
{
    ssize_t count = recv(transport->descriptor, buffer, size, MSG_DONTWAIT);
    return count < 0 ? -(int64_t)errno : (int64_t)count;
}

static int64_t ms_plain_send(ms_transport *transport, const void *data, size_t size, int has_more)
{
    ssize_t sent;
    do
        sent = send(transport->descriptor, data, size, MS_SEND_FLAGS | (has_more ? MSG_MORE : 0));
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -(int64_t)errno : (int64_t)sent;
}

/* How many bytes were sent before the socket was full or something was wrong. */
static int64_t ms_plain_send_file(
    ms_transport *transport, int file, int64_t position, int64_t length)
{
    off_t at = (off_t)position;
    while (at < position + length) {
        ssize_t sent = sendfile(
            transport->descriptor, file, &at, (size_t)(position + length - at));
        if (sent == 0 || (sent < 0 && errno != EINTR))
            break;
    }
    return (int64_t)at - position;
}

void ms_transport_open(ms_transport *transport, int descriptor)
{
    *transport = (ms_transport){
        .receive = ms_plain_receive,
        .send = ms_plain_send,
        .send_file = ms_plain_send_file,
        .descriptor = descriptor,
    };
}

/* Left alone the kernel finds out by and by how many bytes that should be, and a limit that is set
   (SO_RCVBUF) is a small one on most systems and final. So it is told that nobody will look at fewer
   bytes, which makes it see to their room unless there is a limit, and then that somebody will. */
void ms_transport_widen(const ms_transport *transport, int size)
{
    const int any = 1;
    setsockopt(transport->descriptor, SOL_SOCKET, SO_RCVLOWAT, &size, sizeof size);
    setsockopt(transport->descriptor, SOL_SOCKET, SO_RCVLOWAT, &any, sizeof any);
}
