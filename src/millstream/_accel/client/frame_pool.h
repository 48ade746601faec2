/* Memory for what a socket brings: blocks that are used again, because fresh memory is slow.

   One pool for all selectors of the process, which stays when they have ended: a program that opens
   one short-lived consumer after the other would else pay for fresh memory each time. The loop of a
   selector takes blocks, and the Python objects that own them release them, so the pool has a lock
   of its own, the last of all locks. */

#ifndef MILLSTREAM_FRAME_POOL_H
#define MILLSTREAM_FRAME_POOL_H

#include <pthread.h>
#include <stdint.h>

typedef struct ms_block {
    struct ms_block *next;
    int64_t capacity;
    uint8_t data[];
} ms_block;

typedef struct {
    pthread_mutex_t lock;
    ms_block *idle;
    int64_t idle_bytes;
} ms_pool;

/* Only the extension module that makes selectors has it; others find it by their selector. */
extern ms_pool ms_frames;

/* In a forked child: another thread may have been at the pool, so what was idle is given up. */
void ms_pool_after_fork(void);
/* A block for `size` bytes, or NULL. */
ms_block *ms_block_take(ms_pool *pool, int64_t size);
/* NULL is fine. */
void ms_block_release(ms_pool *pool, ms_block *block);

#endif
