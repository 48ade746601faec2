"""Records and batches as bytes: checksums, hashes, encoding and decoding.

`millstream.records.kernel` chooses between these modules and the plain-Python ones in
`millstream.records.plain`. Nothing here knows of sockets, files or threads.
"""
