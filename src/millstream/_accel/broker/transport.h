/* A connection's bytes behind two calls, receive and send: the selector, the thread that receives
   large frames and the sender of records know nothing else of what is between them and the peer.
   A plain socket is one transport; TLS would be another. One thread uses it at a time. */

#ifndef MILLSTREAM_TRANSPORT_H
#define MILLSTREAM_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

typedef struct ms_transport ms_transport;

struct ms_transport {
    /* The bytes received, 0 at the end of the stream, -errno; -EAGAIN if there are none now. */
    int64_t (*receive)(ms_transport *transport, void *buffer, size_t size);
    /* The bytes taken, or -errno. `has_more` says that others follow at once. */
    int64_t (*send)(ms_transport *transport, const void *data, size_t size, int has_more);
    /* The same for a region of a file, without a copy; NULL where that cannot be. */
    int64_t (*send_file)(ms_transport *transport, int file, int64_t position, int64_t length);
    /* Whether bytes were taken from the socket that were not received yet: no poll tells of them.
       NULL where that cannot be. */
    int (*has_buffered)(const ms_transport *transport);
    /* What can be polled for. */
    int descriptor;
    /* What the transport needs for itself. */
    void *session;
};

/* A plain socket. */
void ms_transport_open(ms_transport *transport, int descriptor);

/* Have the kernel take in so many bytes of a stream before they are received. */
void ms_transport_widen(const ms_transport *transport, int size);

#endif
