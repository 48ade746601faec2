/* Finished columns handed to Arrow: schemas and arrays with their release callbacks. */

#ifndef MILLSTREAM_ARROW_EXPORT_H
#define MILLSTREAM_ARROW_EXPORT_H

#include "arrow/abi.h"
#include "arrow/columns.h"

#define MS_CHILDREN_MAX 6

typedef struct {
    ms_columns columns;
    int64_t reference_count;
} ms_shared_columns;

/* Which columns are exported, and in which order. */
typedef struct {
    int count;
    int columns[MS_CHILDREN_MAX];
    int has_views; /* keys and values as views, which polars takes as they are */
} ms_selection;

/* Takes the columns over and leaves empty ones; NULL without memory. */
ms_shared_columns *ms_share(ms_columns *columns);

ms_shared_columns *ms_retain(ms_shared_columns *shared);
void ms_let_go(ms_shared_columns *shared);

/* Each of these gives 0, and exports nothing, without memory. */
int ms_export_schema(struct ArrowSchema *schema, const ms_selection *selection);
int ms_export_array(
    struct ArrowArray *array, ms_shared_columns *shared, const ms_selection *selection);

#endif
