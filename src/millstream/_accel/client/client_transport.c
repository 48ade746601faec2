/* Plain sockets as a client's transports; see client_transport.h. */

#include "client/client_transport.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static int64_t ms_plain_receive(
    ms_client_transport *transport, const struct iovec *vectors, int count)
{
    ssize_t got;
    do
        got = readv(transport->descriptor, vectors, count);
    while (got < 0 && errno == EINTR);
    return got < 0 ? -(int64_t)errno : (int64_t)got;
}

static int64_t ms_plain_send(
    ms_client_transport *transport, const struct iovec *vectors, int count)
{
    ssize_t sent;
    struct msghdr message;
    memset(&message, 0, sizeof message);
    message.msg_iov = (struct iovec *)vectors; /* It is not written to. */
    message.msg_iovlen = (size_t)count;
    do
        sent = sendmsg(transport->descriptor, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    /* Without buffers it is as full as without room. */
    return sent < 0 ? -(int64_t)(errno == ENOBUFS ? EAGAIN : errno) : (int64_t)sent;
}

static int ms_plain_open(const ms_transports *transports, ms_client_transport *transport, int fd)
{
    (void)transports;
    *transport = (ms_client_transport){
        .receive = ms_plain_receive, .send = ms_plain_send, .descriptor = fd};
    return 0;
}

const ms_transports ms_plain_transports = {ms_plain_open};
