/* What a selector does with one connection: connect, shake hands, send, receive and cut into frames.

   Sending may be done by any thread, one at a time per connection; the rest by the loop alone. */

#ifndef MILLSTREAM_CLIENT_CONNECTION_H
#define MILLSTREAM_CLIENT_CONNECTION_H

#include "client/client_sockets.h"

/* A frame of `vector_count` parts, with room for as many views and `copied` bytes behind them. */
ms_outgoing *ms_outgoing_new(int vector_count, int view_count, int64_t copied);
/* A frame that is a copy: `size` bytes to be filled in by the caller. */
ms_outgoing *ms_outgoing_copy(int64_t size, uint8_t **data);

/* ---- under the lock ---- */

/* Sent, or never to be. */
void ms_outgoing_done(ms_selector *selector, ms_outgoing *out);
void ms_queue(ms_connection *connection, ms_outgoing *out);
/* Send the queue until the socket is full; the lock is let go during each call. Nothing happens
   while another thread is at it; that one goes on with what was added. */
void ms_flush(ms_selector *selector, ms_connection *connection);

/* ---- by the loop, under the lock ---- */

/* What epoll is to look for. */
void ms_watch(ms_selector *selector, ms_connection *connection);
/* The next address that can be tried at all; `code`: what was wrong with the one before, or 0. */
void ms_try_next(ms_selector *selector, ms_connection *connection, int code);
/* The socket of a connection that is not ready has something to tell. */
void ms_advance(ms_selector *selector, ms_connection *connection);
/* By the loop or when there is none: gives up everything the connection has. */
void ms_connection_free(ms_selector *selector, ms_connection *connection);

/* ---- by the loop, without the lock ---- */

/* All that the socket has. */
void ms_receive(ms_selector *selector, ms_connection *connection);

#endif
