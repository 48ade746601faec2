/* Memory for what a socket brings: blocks that are used again, because fresh memory is slow.

   The loop of a selector takes blocks, and the Python objects that own them give them back, so a
   pool has a lock of its own, the last of all locks, and lives as long as its last user. */

#ifndef MILLSTREAM_FRAME_POOL_H
#define MILLSTREAM_FRAME_POOL_H

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MS_BLOCK_SIZE_MIN 4096
#define MS_LARGE_PAGE ((size_t)2 << 20)

typedef struct ms_block {
    struct ms_block *next;
    int64_t capacity;
    uint8_t data[];
} ms_block;

typedef struct {
    pthread_mutex_t lock;
    ms_block *idle;
    int64_t idle_bytes;
    int64_t idle_bytes_max; /* what is kept beyond it is given back to the system */
    int users;
} ms_pool;

static inline ms_pool *ms_pool_new(int64_t idle_bytes_max)
{
    ms_pool *pool = (ms_pool *)calloc(1, sizeof(ms_pool));
    if (!pool)
        return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pool->idle_bytes_max = idle_bytes_max;
    pool->users = 1;
    return pool;
}

static inline void ms_pool_hold(ms_pool *pool)
{
    __atomic_add_fetch(&pool->users, 1, __ATOMIC_RELAXED);
}

static inline void ms_pool_release(ms_pool *pool)
{
    if (!pool || __atomic_sub_fetch(&pool->users, 1, __ATOMIC_ACQ_REL))
        return;
    while (pool->idle) {
        ms_block *block = pool->idle;
        pool->idle = block->next;
        free(block);
    }
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

/* Sizes grow by quarters of powers of two, so that blocks of like size serve each other. */
static inline int64_t ms_block_capacity(int64_t size)
{
    if (size <= MS_BLOCK_SIZE_MIN)
        return MS_BLOCK_SIZE_MIN;
    int64_t step = (int64_t)1 << (61 - __builtin_clzll((uint64_t)(size - 1)));
    return (size + step - 1) / step * step;
}

/* Memory that is touched for the first time costs more than what is received into it: large blocks
   ask for large pages, where the system has them. */
static inline ms_block *ms_block_allocate(size_t size)
{
    void *memory = NULL;
    if (size < MS_LARGE_PAGE)
        return (ms_block *)malloc(size);
    if (posix_memalign(&memory, MS_LARGE_PAGE, size))
        return NULL;
#ifdef MADV_HUGEPAGE
    (void)madvise(memory, size, MADV_HUGEPAGE); /* a wish only */
#endif
    return (ms_block *)memory;
}

/* A block for `size` bytes, or NULL. */
static inline ms_block *ms_block_take(ms_pool *pool, int64_t size)
{
    int64_t capacity = ms_block_capacity(size);
    ms_block *block = NULL;
    pthread_mutex_lock(&pool->lock);
    for (ms_block **at = &pool->idle; *at; at = &(*at)->next) {
        if ((*at)->capacity >= capacity && (*at)->capacity <= 2 * capacity) {
            block = *at;
            *at = block->next;
            pool->idle_bytes -= block->capacity;
            break;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    if (!block && (block = ms_block_allocate(sizeof(ms_block) + (size_t)capacity)))
        block->capacity = capacity;
    return block;
}

static inline void ms_block_give_back(ms_pool *pool, ms_block *block)
{
    if (!block)
        return;
    pthread_mutex_lock(&pool->lock);
    int is_kept = pool->idle_bytes + block->capacity <= pool->idle_bytes_max;
    if (is_kept) {
        block->next = pool->idle;
        pool->idle = block;
        pool->idle_bytes += block->capacity;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!is_kept)
        free(block);
}

#endif
