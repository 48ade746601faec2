/* A client's connection behind two calls, receive and send, and a handshake before both: the loop
   and the threads that send know nothing else of what is between them and the broker. A plain
   socket is one transport, without a handshake; TLS would be another.

   The loop alone shakes hands and receives. Another thread may send meanwhile, one at a time: a
   transport that cannot bear that has a lock of its own. Nothing here needs the GIL. */

#ifndef MILLSTREAM_CLIENT_TRANSPORT_H
#define MILLSTREAM_CLIENT_TRANSPORT_H

#include <stdint.h>
#include <sys/uio.h>

/* How a handshake goes on: it is done, or is continued when the socket has bytes, or room. */
enum ms_handshake { MS_HANDSHAKE_DONE, MS_HANDSHAKE_READS, MS_HANDSHAKE_WRITES };

typedef struct ms_client_transport ms_client_transport;

struct ms_client_transport {
    /* One step: of `enum ms_handshake`, or -errno. NULL where nothing comes before the frames. */
    int (*shake_hands)(ms_client_transport *transport);
    /* The bytes received, 0 at the end of the stream, -errno; -EAGAIN if there are none now. */
    int64_t (*receive)(ms_client_transport *transport, const struct iovec *vectors, int count);
    /* The bytes taken, as many as there is room for, or -errno; -EAGAIN if there is no room. */
    int64_t (*send)(ms_client_transport *transport, const struct iovec *vectors, int count);
    /* Whether bytes were taken from the socket that were not received yet: epoll does not tell of
       them. NULL where that cannot be. */
    int (*has_buffered)(const ms_client_transport *transport);
    /* Free the session; the socket is its owner's. NULL where there is none. */
    void (*end)(ms_client_transport *transport);
    /* What epoll watches. */
    int descriptor;
    /* What the transport needs for itself. */
    void *session;
};

/* Makes the transports of a selector, of sockets that are connected: 0, or an errno. */
typedef struct ms_transports {
    int (*open)(const struct ms_transports *transports, ms_client_transport *transport, int fd);
} ms_transports;

/* Plain sockets. */
extern const ms_transports ms_plain_transports;

#endif
