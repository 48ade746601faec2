/* Arrow columns bound as the source of records, and the headers of a row. `ArrowRecordsReader` binds
   them with the GIL; `BatchWriter` reads rows mostly without. Plain version:
   records/plain/arrow_reader.py. */

#include "arrow/input.h"

/* ---- binding ---- */

static inline const uint8_t *ms_validity(const struct ArrowArray *array)
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

/* `first` and `count`: which values of the array there must be. 0 if they are not there. */
static int ms_bind(
    ms_source *source, const ms_place *place, const struct ArrowArray *array, int64_t first,
    int64_t count)
{
    source->layout = place->layout;
    source->width = place->width;
    if (place->layout == MS_ABSENT || place->layout == MS_NULLS)
        return 1;
    if (!array || array->offset < 0 || array->length < first + count
        || array->n_buffers < ms_buffers_wanted(place->layout))
        return 0;
    source->first = array->offset + first;
    source->validity = ms_validity(array);
    source->values = (const uint8_t *)array->buffers[1];
    if (place->layout == MS_VIEWS) {
        source->view_buffers = array->buffers + 2;
        source->view_buffer_count = array->n_buffers - 3;
        source->view_buffer_sizes = (const int64_t *)array->buffers[array->n_buffers - 1];
    } else if (place->layout != MS_FIXED) {
        source->bytes = (const uint8_t *)array->buffers[2];
    }
    return count == 0 || source->values != NULL || (place->layout == MS_FIXED && !place->width);
}

static const struct ArrowArray *ms_child(const struct ArrowArray *array, int64_t child)
{
    return child >= 0 && child < array->n_children ? array->children[child] : NULL;
}

/* Lists have two buffers, not three as strings have. */
static int ms_bind_headers(
    ms_input *input, const ms_plan *plan, const struct ArrowArray *lists, int64_t first)
{
    ms_source *source = &input->headers;
    source->layout = plan->headers.layout;
    if (source->layout == MS_ABSENT || source->layout == MS_NULLS)
        return 1;
    if (!lists || lists->offset < 0 || lists->length < first + input->row_count
        || lists->n_buffers < 2 || lists->n_children != 1)
        return 0;
    const struct ArrowArray *entries = lists->children[0];
    if (entries->offset < 0 || entries->length < 0)
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

int ms_bind_input(ms_input *input, const ms_plan *plan, const struct ArrowArray *array)
{
    int64_t first = array->offset;
    int64_t count = array->length;
    memset(input, 0, sizeof *input);
    if (first < 0 || count < 0)
        return 0;
    input->row_count = count;
    input->timestamp_multiplier = plan->timestamp_multiplier;
    input->timestamp_divisor = plan->timestamp_divisor;
    return ms_bind(&input->key, &plan->key, ms_child(array, plan->key.child), first, count)
        && ms_bind(&input->value, &plan->value, ms_child(array, plan->value.child), first, count)
        && ms_bind(&input->timestamp, &plan->timestamp,
                   ms_child(array, plan->timestamp.child), first, count)
        && ms_bind(&input->partition, &plan->partition,
                   ms_child(array, plan->partition.child), first, count)
        && ms_bind_headers(input, plan, ms_child(array, plan->headers.child), first);
}

/* ---- headers ---- */

int ms_measure_headers(const ms_input *input, int64_t row, ms_row *out)
{
    int64_t at = input->headers.first + row;
    int64_t start, end;
    const uint8_t *data;
    if (ms_is_null(input->headers.validity, at))
        return MS_ROW_DONE;
    if (!ms_range_at(&input->headers, at, &start, &end) || end > input->entry_count)
        return MS_ROW_UNSOUND_HEADERS;
    out->first_header = start;
    out->header_count = end - start;
    for (int64_t i = start; i < end; i++) {
        if (ms_is_null(input->entry_validity, input->entry_first + i))
            return MS_ROW_NULL_HEADER;
        int64_t key_length = ms_string_at(&input->header_key, i, &data);
        int64_t value_length = ms_string_at(&input->header_value, i, &data);
        if (key_length == MS_NULL)
            return MS_ROW_NULL_HEADER_KEY;
        if (key_length == MS_UNSOUND || value_length == MS_UNSOUND)
            return MS_ROW_UNSOUND_HEADERS;
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
