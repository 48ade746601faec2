# Nothing here is for Python: `batch_writer` calls it in C.
