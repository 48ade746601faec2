/* Arrow columns bound as the source of records, and the headers of a row. `ArrowRecordsReader` binds
   them with the GIL; `BatchWriter` reads rows mostly without. Plain version:
   records/plain/arrow_reader.py. */

#include "arrow/input.h"

/* ---- the shape of an array ---- */

static const uint8_t *ms_validity(const struct ArrowArray *array)
{
    return array->null_count && array->n_buffers > 0 ? (const uint8_t *)array->buffers[0] : NULL;
}

static int ms_buffers_wanted(int layout)
{
    switch (layout) {
    case MS_OFFSETS_32:
    case MS_OFFSETS_64:
    case MS_VIEWS: return 3;
    case MS_FIXED: return 2;
    default: return 0;
    }
}

/* Whether an array has `count` values from `first` on, each of up to `width` bytes, and so many
   buffers. Then no sum or product of them overflows. */
static int ms_has_values(
    const struct ArrowArray *array, int64_t first, int64_t count, int64_t width, int buffers)
{
    int64_t stop, end, size;
    return array && array->offset >= 0 && array->length >= 0 && array->n_buffers >= buffers
        && (array->n_buffers <= 0 || array->buffers)
        && !__builtin_add_overflow(first, count, &stop) && stop <= array->length
        && !__builtin_add_overflow(array->offset, array->length, &end)
        && end < INT64_MAX && !__builtin_mul_overflow(end + 1, width, &size);
}

/* `first` and `count`: which values of the array there must be. 0 if they are not there. */
static int ms_bind(
    ms_source *source, const ms_place *place, const struct ArrowArray *array, int64_t first,
    int64_t count)
{
    source->layout = place->layout;
    source->width = place->width;
    if (place->layout == MS_ABSENT || place->layout == MS_NULLS)
        return 1;
    int64_t width = place->width > MS_VIEW_SIZE ? place->width : MS_VIEW_SIZE;
    if (!ms_has_values(array, first, count, width, ms_buffers_wanted(place->layout)))
        return 0;
    source->first = array->offset + first;
    source->end = array->offset + array->length;
    source->validity = ms_validity(array);
    source->values = (const uint8_t *)array->buffers[1];
    if (place->layout == MS_VIEWS) {
        source->view_buffers = array->buffers + 2;
        source->view_buffer_count = array->n_buffers - 3;
        source->view_buffer_sizes = (const int64_t *)array->buffers[array->n_buffers - 1];
        if (source->view_buffer_count && !source->view_buffer_sizes)
            return 0;
    } else if (place->layout != MS_FIXED) {
        source->bytes = (const uint8_t *)array->buffers[2];
    }
    return count == 0 || source->values || (place->layout == MS_FIXED && !place->width);
}

static const struct ArrowArray *ms_child(const struct ArrowArray *array, int64_t child)
{
    return array && child >= 0 && child < array->n_children && array->children
        ? array->children[child] : NULL;
}

/* Lists have two buffers, not three as strings have. */
static int ms_bind_headers(
    ms_input *input, const ms_plan *plan, const struct ArrowArray *lists, int64_t first)
{
    ms_source *source = &input->headers;
    source->layout = plan->headers.layout;
    if (source->layout == MS_ABSENT || source->layout == MS_NULLS)
        return 1;
    const struct ArrowArray *entries = ms_child(lists, 0);
    if (!ms_has_values(lists, first, input->row_count, MS_VIEW_SIZE, 2) || lists->n_children != 1
        || !ms_has_values(entries, 0, 0, MS_VIEW_SIZE, 0))
        return 0;
    source->first = lists->offset + first;
    source->validity = ms_validity(lists);
    source->values = (const uint8_t *)lists->buffers[1];
    input->entry_count = plan->header_key.layout == MS_ABSENT ? 0 : entries->length;
    input->entry_first = entries->offset;
    input->entry_validity = ms_validity(entries);
    return (input->row_count == 0 || source->values)
        && ms_bind(&input->header_key, &plan->header_key,
                   ms_child(entries, plan->header_key.child), entries->offset, input->entry_count)
        && ms_bind(&input->header_value, &plan->header_value,
                   ms_child(entries, plan->header_value.child), entries->offset,
                   input->entry_count);
}

static int ms_bind_columns(ms_input *input, const ms_plan *plan, const struct ArrowArray *array)
{
    int64_t first = array->offset;
    int64_t count = array->length;
    return ms_has_values(array, 0, 0, MS_VIEW_SIZE, 0)
        && ms_bind(&input->key, &plan->key, ms_child(array, plan->key.child), first, count)
        && ms_bind(&input->value, &plan->value, ms_child(array, plan->value.child), first, count)
        && ms_bind(&input->timestamp, &plan->timestamp,
                   ms_child(array, plan->timestamp.child), first, count)
        && ms_bind(&input->partition, &plan->partition,
                   ms_child(array, plan->partition.child), first, count)
        && ms_bind_headers(input, plan, ms_child(array, plan->headers.child), first);
}

/* ---- the values of a column ---- */

/* Whether 32-bit offsets never fall. Without an exit on the way, so that it is done by vectors. */
static int ms_rises(const uint8_t *offsets, int64_t count)
{
    int falls = 0;
    for (int64_t i = 0; i < count; i++)
        falls |= ms_int32_at(offsets, i + 1) < ms_int32_at(offsets, i);
    return !falls;
}

/* The first value whose offsets are not 0 <= start <= end <= bound, or -1. */
static int64_t ms_bad_offset(const ms_source *source, int64_t count, int64_t bound)
{
    int64_t start = ms_offset_at(source, source->first);
    if (source->layout == MS_OFFSETS_32 && start >= 0
        && ms_offset_at(source, source->first + count) <= bound
        && ms_rises(source->values + 4 * source->first, count))
        return -1;
    for (int64_t i = 0; i < count; i++) {
        int64_t end = ms_offset_at(source, source->first + i + 1);
        if (start < 0 || end < start || end > bound)
            return i;
        start = end;
    }
    return -1;
}

/* The first view that is neither null nor inside its buffer, or -1. */
static int64_t ms_bad_view(const ms_source *source, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        ms_view_parts view = ms_view_at(source, source->first + i);
        if ((view.length >= 0 && view.length <= MS_VIEW_INLINE_MAX)
            || ms_is_null(source->validity, source->first + i))
            continue;
        if (view.length < 0 || view.offset < 0 || view.buffer < 0
            || view.buffer >= source->view_buffer_count || !source->view_buffers[view.buffer]
            || (int64_t)view.offset + view.length
                > ms_int64_at((const uint8_t *)source->view_buffer_sizes, view.buffer))
            return i;
    }
    return -1;
}

static int64_t ms_bad_string(const ms_source *source, int64_t count)
{
    if (count == 0 || source->layout <= MS_NULLS || source->layout == MS_FIXED)
        return -1;
    if (source->layout == MS_VIEWS)
        return ms_bad_view(source, count);
    return ms_bad_offset(source, count, source->bytes ? ms_offset_at(source, source->end) : 0);
}

static int64_t ms_bad_list(const ms_input *input)
{
    if (input->row_count == 0 || input->headers.layout <= MS_NULLS)
        return -1;
    return ms_bad_offset(&input->headers, input->row_count, input->entry_count);
}

int ms_bind_input(
    ms_input *input, const ms_plan *plan, const struct ArrowArray *array, int64_t *bad)
{
    memset(input, 0, sizeof *input);
    input->row_count = array->length;
    input->timestamp_multiplier = plan->timestamp_multiplier;
    input->timestamp_divisor = plan->timestamp_divisor;
    if (!ms_bind_columns(input, plan, array))
        return MS_BAD_SHAPE;
    if ((*bad = ms_bad_string(&input->key, input->row_count)) >= 0)
        return MS_BAD_KEY;
    if ((*bad = ms_bad_string(&input->value, input->row_count)) >= 0)
        return MS_BAD_VALUE;
    if ((*bad = ms_bad_list(input)) >= 0)
        return MS_BAD_HEADERS;
    if ((*bad = ms_bad_string(&input->header_key, input->entry_count)) >= 0)
        return MS_BAD_HEADER_KEY;
    if ((*bad = ms_bad_string(&input->header_value, input->entry_count)) >= 0)
        return MS_BAD_HEADER_VALUE;
    return MS_BOUND;
}

/* ---- headers ---- */

int ms_measure_headers(const ms_input *input, int64_t row, ms_row *out)
{
    int64_t at = input->headers.first + row;
    const uint8_t *data;
    if (ms_is_null(input->headers.validity, at))
        return MS_ROW_DONE;
    int64_t start = ms_offset_at(&input->headers, at);
    int64_t end = ms_offset_at(&input->headers, at + 1);
    out->first_header = start;
    out->header_count = end - start;
    for (int64_t i = start; i < end; i++) {
        if (ms_is_null(input->entry_validity, input->entry_first + i))
            return MS_ROW_NULL_HEADER;
        int64_t key_length = ms_string_at(&input->header_key, i, &data);
        int64_t value_length = ms_string_at(&input->header_value, i, &data);
        if (key_length == MS_NULL)
            return MS_ROW_NULL_HEADER_KEY;
        out->headers_size += ms_bytes_size(key_length) + ms_bytes_size(value_length);
    }
    return MS_ROW_DONE;
}

uint8_t *ms_write_row_headers(uint8_t *p, const ms_input *input, const ms_row *row)
{
    const uint8_t *data = NULL;
    for (int64_t i = row->first_header; i < row->first_header + row->header_count; i++) {
        int64_t length = ms_string_at(&input->header_key, i, &data);
        p = ms_write_bytes(p, data, length);
        length = ms_string_at(&input->header_value, i, &data);
        p = ms_write_bytes(p, data, length);
    }
    return p;
}
