/* A thread that receives large frames while the event loop does something else; see
   frame_receiver.c. */

#ifndef MILLSTREAM_FRAME_RECEIVER_H
#define MILLSTREAM_FRAME_RECEIVER_H

#include "broker/transport.h"

/* A connection that is handed off to the thread, with the buffer that is received into. */
typedef struct {
    /* The selector says: */
    ms_transport *transport;
    uint8_t *base;
    int64_t start; /* where a frame begins */
    int64_t end;   /* where the next bytes go; it moves */
    int64_t size;  /* of the buffer */
    void *owner;
    /* and gets back: */
    int64_t result; /* 1: a frame. Else what the transport said: 0 at the end, -errno; -EAGAIN if slow */
    /* Between the two, for the thread. */
    int state;
    int place;
    int64_t deadline_ns;
} ms_handoff;

typedef struct ms_receiving ms_receiving;

/* NULL, with errno set, if there can be none. */
ms_receiving *ms_receiving_start(void);

/* End the thread; what is handed off still is the selector's with that. */
void ms_receiving_end(ms_receiving *receiving);

/* Hand a connection off; 0 if there are too many already, or there is nothing to receive into. */
int ms_receiving_hand_off(ms_receiving *receiving, ms_handoff *handoff);

/* Take one back now; it takes a single receive at most. */
void ms_receiving_take_back(ms_receiving *receiving, ms_handoff *handoff);

/* The oldest one that is done and not the thread's any more, NULL if none is. */
ms_handoff *ms_receiving_collect(ms_receiving *receiving);

/* Notify again if something was not collected. */
void ms_receiving_renotify(ms_receiving *receiving);

/* How many are handed off. */
int ms_receiving_count(const ms_receiving *receiving);

/* An eventfd that is written to when there is something to collect. */
int ms_receiving_eventfd(const ms_receiving *receiving);

#endif
