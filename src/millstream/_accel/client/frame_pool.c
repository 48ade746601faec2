/* See frame_pool.h. */

#include "client/frame_pool.h"

#include <stdlib.h>

#include "large_memory.h"

#define MS_BLOCK_SIZE_MIN 4096
#define MS_IDLE_BYTES_MAX ((int64_t)20 << 20) /* beyond it blocks go back to the system */

ms_pool ms_frames = {PTHREAD_MUTEX_INITIALIZER, NULL, 0};

void ms_pool_after_fork(void)
{
    pthread_mutex_init(&ms_frames.lock, NULL);
    ms_frames.idle = NULL;
    ms_frames.idle_bytes = 0;
}

/* Sizes grow by eighths of powers of two, so that blocks of like size serve each other. */
static int64_t ms_block_capacity(int64_t size)
{
    if (size <= MS_BLOCK_SIZE_MIN)
        return MS_BLOCK_SIZE_MIN;
    int64_t step = (int64_t)1 << (60 - __builtin_clzll((uint64_t)(size - 1)));
    return (size + step - 1) / step * step;
}

static ms_block *ms_block_allocate(size_t size)
{
    return (ms_block *)(size < MS_LARGE_PAGE ? malloc(size) : ms_large_allocate(size));
}

ms_block *ms_block_take(ms_pool *pool, int64_t size)
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

void ms_block_release(ms_pool *pool, ms_block *block)
{
    if (!block)
        return;
    pthread_mutex_lock(&pool->lock);
    int is_kept = pool->idle_bytes + block->capacity <= MS_IDLE_BYTES_MAX;
    if (is_kept) {
        block->next = pool->idle;
        pool->idle = block;
        pool->idle_bytes += block->capacity;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!is_kept)
        free(block);
}
