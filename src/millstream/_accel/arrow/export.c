/* Finished columns handed to Arrow. `ArrowRecords` and `ArrowStream` call it with the GIL. Plain
   version: records/plain/arrow_builder.py and arrow_stream.py.

   The columns are counted by reference: every exported array, parent or child, holds one, so a
   consumer may move a child out and keep it longer than the rest. Release callbacks may come from any
   thread and without the GIL, hence the atomic count and the raw allocator. */

#include "arrow/export.h"

#include <Python.h>
#include <string.h>

ms_shared_columns *ms_share(ms_columns *columns)
{
    if (!ms_complete(columns))
        return NULL;
    ms_shared_columns *shared = (ms_shared_columns *)PyMem_RawMalloc(sizeof *shared);
    if (!shared)
        return NULL;
    shared->columns = *columns;
    shared->reference_count = 1;
    *columns = ms_expect_columns(&shared->columns);
    return shared;
}

ms_shared_columns *ms_retain(ms_shared_columns *shared)
{
    __atomic_add_fetch(&shared->reference_count, 1, __ATOMIC_RELAXED);
    return shared;
}

void ms_let_go(ms_shared_columns *shared)
{
    if (shared && __atomic_sub_fetch(&shared->reference_count, 1, __ATOMIC_ACQ_REL) == 0) {
        ms_free_columns(&shared->columns);
        PyMem_RawFree(shared);
    }
}

/* ---- schemas ---- */

typedef struct {
    struct ArrowSchema children[MS_CHILDREN_MAX];
    struct ArrowSchema *pointers[MS_CHILDREN_MAX];
} ms_schema_node;

static void ms_release_schema(struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++)
        if (schema->children[i]->release) /* else the consumer has moved it */
            schema->children[i]->release(schema->children[i]);
    PyMem_RawFree(schema->private_data);
    schema->release = NULL;
}

/* Children are empty (no release) until they are made in turn, so a half-made schema can be
   released like a whole one. */
static int ms_make_schema(
    struct ArrowSchema *schema, const char *format, const char *name, int64_t flags, int n_children)
{
    ms_schema_node *node = NULL;
    memset(schema, 0, sizeof *schema);
    if (n_children) {
        if (!(node = (ms_schema_node *)PyMem_RawCalloc(1, sizeof *node)))
            return 0;
        for (int i = 0; i < n_children; i++)
            node->pointers[i] = &node->children[i];
        schema->children = node->pointers;
    }
    schema->format = format;
    schema->name = name;
    schema->flags = flags;
    schema->n_children = n_children;
    schema->private_data = node;
    schema->release = ms_release_schema;
    return 1;
}

static int ms_make_headers_schema(struct ArrowSchema *schema)
{
    return ms_make_schema(schema, "+l", "headers", 0, 1)
        && ms_make_schema(schema->children[0], "+s", "item", 0, 2)
        && ms_make_schema(schema->children[0]->children[0], "u", "key", 0, 0)
        && ms_make_schema(schema->children[0]->children[1], "z", "value", MS_ARROW_NULLABLE, 0);
}

/* Columns by number, in the order of `COLUMNS` in arrow_schema.py. */
static int ms_make_column_schema(struct ArrowSchema *schema, int column, int has_views)
{
    const char *bytes = has_views ? "vz" : "z";
    switch (column) {
    case 0: return ms_make_schema(schema, bytes, "key", MS_ARROW_NULLABLE, 0);
    case 1: return ms_make_schema(schema, bytes, "value", MS_ARROW_NULLABLE, 0);
    case 2: return ms_make_headers_schema(schema);
    case 3: return ms_make_schema(schema, "tsm:UTC", "timestamp", 0, 0);
    case 4: return ms_make_schema(schema, "l", "offset", 0, 0);
    default: return ms_make_schema(schema, "i", "partition", 0, 0);
    }
}

int ms_export_schema(struct ArrowSchema *schema, const ms_selection *selection)
{
    if (!ms_make_schema(schema, "+s", "", 0, selection->count))
        return 0;
    for (int i = 0; i < selection->count; i++)
        if (!ms_make_column_schema(
                schema->children[i], selection->columns[i], selection->has_views)) {
            schema->release(schema);
            return 0;
        }
    return 1;
}

/* ---- arrays ---- */

typedef struct {
    ms_shared_columns *shared;
    const void *buffers[4];
    void *views; /* of this array alone */
    int64_t views_capacity;
    int64_t bytes_size;
    struct ArrowArray children[MS_CHILDREN_MAX];
    struct ArrowArray *pointers[MS_CHILDREN_MAX];
} ms_array_node;

static void ms_release_array(struct ArrowArray *array)
{
    ms_array_node *node = (ms_array_node *)array->private_data;
    for (int64_t i = 0; i < array->n_children; i++)
        if (array->children[i]->release) /* else the consumer has moved it */
            array->children[i]->release(array->children[i]);
    ms_memory_free(node->views, node->views_capacity);
    ms_let_go(node->shared);
    PyMem_RawFree(node);
    array->release = NULL;
}

/* An array without nulls whose buffers the caller fills in; as with schemas, children are empty
   until made. */
static int ms_make_array(
    struct ArrowArray *array, ms_shared_columns *shared, int64_t length, int n_buffers,
    int n_children)
{
    ms_array_node *node = (ms_array_node *)PyMem_RawCalloc(1, sizeof *node);
    memset(array, 0, sizeof *array);
    if (!node)
        return 0;
    for (int i = 0; i < n_children; i++)
        node->pointers[i] = &node->children[i];
    node->shared = ms_retain(shared);
    array->length = length;
    array->n_buffers = n_buffers;
    array->n_children = n_children;
    array->buffers = node->buffers;
    array->children = n_children ? node->pointers : NULL;
    array->private_data = node;
    array->release = ms_release_array;
    return 1;
}

static int ms_make_numbers(
    struct ArrowArray *array, ms_shared_columns *shared, const ms_buffer *numbers)
{
    if (!ms_make_array(array, shared, shared->columns.row_count, 2, 0))
        return 0;
    array->buffers[1] = numbers->data;
    return 1;
}

static int ms_make_strings(
    struct ArrowArray *array, ms_shared_columns *shared, int64_t length, const ms_strings *strings)
{
    if (!ms_make_array(array, shared, length, 3, 0))
        return 0;
    array->null_count = strings->null_count;
    array->buffers[0] = strings->null_count ? strings->validity.data : NULL;
    array->buffers[1] = strings->ends.data;
    array->buffers[2] = strings->bytes.data;
    return 1;
}

/* A string of a view array: its length and first bytes, then either the rest of twelve or where in
   which buffer it is. */
typedef struct {
    int32_t length;
    uint8_t head[4];
    union {
        uint8_t tail[8];
        int32_t where[2];
    } rest;
} ms_view;

#define MS_SHORT_VIEW 12
/* The first bytes of a string are asked for so many strings before they are used. */
#define MS_VIEWS_AHEAD 24

/* What is left of twelve bytes when `length` count: read from here on. */
static inline const uint8_t *ms_short_mask(int32_t length)
{
    static const uint8_t masks[2 * MS_SHORT_VIEW] = {
        255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    return masks + MS_SHORT_VIEW - length;
}

static inline void ms_keep_masked(uint8_t *to, const uint8_t *from, const uint8_t *mask, int size)
{
    for (int i = 0; i < size; i++)
        to[i] = from[i] & mask[i];
}

/* Behind the bytes there is room for a step, so twelve can be read wherever a string is. */
static void ms_fill_views(ms_view *views, int64_t count, const ms_strings *strings)
{
    const int32_t *ends = (const int32_t *)strings->ends.data;
    for (int64_t i = 0; i < count; i++) {
        int32_t length = ends[i + 1] - ends[i];
        const uint8_t *data = strings->bytes.data + ends[i];
        /* Where it is if the others are as long: a wrong guess costs nothing. */
        __builtin_prefetch(data + MS_VIEWS_AHEAD * (int64_t)length);
        ms_view view;
        view.length = length;
        if (length > MS_SHORT_VIEW) {
            memcpy(view.head, data, sizeof view.head);
            view.rest.where[0] = 0;
            view.rest.where[1] = ends[i];
        } else {
            const uint8_t *mask = ms_short_mask(length);
            ms_keep_masked(view.head, data, mask, sizeof view.head);
            ms_keep_masked(
                view.rest.tail, data + sizeof view.head, mask + sizeof view.head,
                sizeof view.rest.tail);
        }
        views[i] = view;
    }
}

/* The same strings as views of the bytes, which stay where they are. */
static int ms_make_views(
    struct ArrowArray *array, ms_shared_columns *shared, int64_t length, const ms_strings *strings)
{
    if (!ms_make_array(array, shared, length, 4, 0))
        return 0;
    ms_array_node *node = (ms_array_node *)array->private_data;
    int64_t capacity = (length + 1) * (int64_t)sizeof(ms_view);
    if (!(node->views = ms_memory_take(&capacity)))
        return 0;
    node->views_capacity = capacity;
    node->bytes_size = strings->bytes.size;
    ms_fill_views((ms_view *)node->views, length, strings);
    array->null_count = strings->null_count;
    array->buffers[0] = strings->null_count ? strings->validity.data : NULL;
    array->buffers[1] = node->views;
    array->buffers[2] = strings->bytes.data;
    array->buffers[3] = &node->bytes_size;
    return 1;
}

static int ms_make_headers(struct ArrowArray *array, ms_shared_columns *shared)
{
    ms_columns *columns = &shared->columns;
    if (!ms_make_array(array, shared, columns->row_count, 2, 1))
        return 0;
    array->buffers[1] = columns->header_ends.data;
    struct ArrowArray *item = array->children[0];
    return ms_make_array(item, shared, columns->header_count, 1, 2)
        && ms_make_strings(item->children[0], shared, columns->header_count, &columns->header_key)
        && ms_make_strings(
               item->children[1], shared, columns->header_count, &columns->header_value);
}

static int ms_make_column(
    struct ArrowArray *array, ms_shared_columns *shared, int column, int has_views)
{
    ms_columns *columns = &shared->columns;
    int (*make)(struct ArrowArray *, ms_shared_columns *, int64_t, const ms_strings *) =
        has_views ? ms_make_views : ms_make_strings;
    switch (column) {
    case 0: return make(array, shared, columns->row_count, &columns->key);
    case 1: return make(array, shared, columns->row_count, &columns->value);
    case 2: return ms_make_headers(array, shared);
    case 3: return ms_make_numbers(array, shared, &columns->timestamp);
    case 4: return ms_make_numbers(array, shared, &columns->offset);
    default: return ms_make_numbers(array, shared, &columns->partition);
    }
}

int ms_export_array(
    struct ArrowArray *array, ms_shared_columns *shared, const ms_selection *selection)
{
    if (!ms_make_array(array, shared, shared->columns.row_count, 1, selection->count))
        return 0;
    for (int i = 0; i < selection->count; i++)
        if (!ms_make_column(
                array->children[i], shared, selection->columns[i], selection->has_views)) {
            array->release(array);
            return 0;
        }
    return 1;
}
