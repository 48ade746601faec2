/* For tests: a transport with a handshake of three rounds, whose bytes are all flipped on the wire. It
   takes and gives few bytes at a time, and takes more from the socket than it gives. */

#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "client/client_transport.h"

#define ROUNDS 3
#define FLIP 0x55
#define SENT_MAX 5
#define RECEIVED_MAX 7
#define BUFFERED_MAX 64
#define REFUSED 0xff

typedef struct {
    int round;
    int is_asked; /* it waits for the peer's byte of this round */
    unsigned char bytes[BUFFERED_MAX];
    int start;
    int end;
} fake_session;

static int live_sessions = 0;

int fake_live_sessions(void) { return __atomic_load_n(&live_sessions, __ATOMIC_ACQUIRE); }

/* In each round it sends the round's number and wants it back. */
static int fake_shake_hands(ms_client_transport *transport)
{
    fake_session *session = transport->session;
    while (session->round < ROUNDS) {
        unsigned char byte = (unsigned char)session->round;
        if (!session->is_asked) {
            if (send(transport->descriptor, &byte, 1, MSG_NOSIGNAL) != 1)
                return errno == EAGAIN ? MS_HANDSHAKE_WRITES : -errno;
            session->is_asked = 1;
        }
        ssize_t got = recv(transport->descriptor, &byte, 1, 0);
        if (got < 0)
            return errno == EAGAIN ? MS_HANDSHAKE_READS : -errno;
        if (got == 0 || byte == REFUSED)
            return -EPROTO;
        session->is_asked = 0;
        session->round++;
    }
    return MS_HANDSHAKE_DONE;
}

static int64_t fake_receive(ms_client_transport *transport, const struct iovec *vectors, int count)
{
    fake_session *session = transport->session;
    (void)count;
    if (session->start == session->end) {
        ssize_t got = recv(transport->descriptor, session->bytes, BUFFERED_MAX, 0);
        if (got <= 0)
            return got < 0 ? -errno : 0;
        session->start = 0;
        session->end = (int)got;
    }
    int64_t given = session->end - session->start;
    if (given > RECEIVED_MAX)
        given = RECEIVED_MAX;
    if (given > (int64_t)vectors[0].iov_len)
        given = (int64_t)vectors[0].iov_len;
    for (int64_t i = 0; i < given; i++)
        ((unsigned char *)vectors[0].iov_base)[i] = session->bytes[session->start++] ^ FLIP;
    return given;
}

static int64_t fake_send(ms_client_transport *transport, const struct iovec *vectors, int count)
{
    unsigned char bytes[SENT_MAX];
    size_t size = vectors[0].iov_len < SENT_MAX ? vectors[0].iov_len : SENT_MAX;
    (void)count;
    for (size_t i = 0; i < size; i++)
        bytes[i] = ((const unsigned char *)vectors[0].iov_base)[i] ^ FLIP;
    ssize_t sent = send(transport->descriptor, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent < 0 ? -errno : sent;
}

static int fake_has_buffered(const ms_client_transport *transport)
{
    const fake_session *session = transport->session;
    return session->start < session->end;
}

static void fake_end(ms_client_transport *transport)
{
    free(transport->session);
    __atomic_sub_fetch(&live_sessions, 1, __ATOMIC_ACQ_REL);
}

static int fake_open(const ms_transports *transports, ms_client_transport *transport, int fd)
{
    fake_session *session = calloc(1, sizeof *session);
    (void)transports;
    if (!session)
        return ENOMEM;
    __atomic_add_fetch(&live_sessions, 1, __ATOMIC_ACQ_REL);
    *transport = (ms_client_transport){
        fake_shake_hands, fake_receive, fake_send, fake_has_buffered, fake_end, fd, session};
    return 0;
}

const ms_transports fake_transports = {fake_open};
