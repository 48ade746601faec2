"""What the extension modules take from wire.h. See there."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef extern from "wire.h" nogil:
    enum:
        MS_LENGTH_AT
        MS_LENGTH_END
        MS_CRC_AT
        MS_CRC_END
        MS_HEADER_SIZE
        MS_RECORD_SIZE_MIN

    ctypedef struct ms_fault:
        int kind
        int field
        int64_t value
        int64_t left
        const uint8_t* position

    ctypedef struct ms_record:
        int64_t offset
        int64_t timestamp
        const uint8_t* key
        const uint8_t* value
        const uint8_t* headers
        const uint8_t* end
        int32_t key_length
        int32_t value_length
        int32_t header_count

    ctypedef struct ms_header:
        const uint8_t* key
        const uint8_t* value
        int32_t key_length
        int32_t value_length

    const uint8_t* ms_read_header(
        const uint8_t* p, const uint8_t* end, ms_header* header, ms_fault* fault)
    const uint8_t* ms_read_record(
        const uint8_t* p, const uint8_t* end, int64_t base_offset, int64_t base_timestamp,
        ms_record* record, ms_fault* fault)
    int64_t ms_bytes_size(int64_t length)
    int64_t ms_record_length(
        int64_t timestamp_delta, int64_t offset_delta, int64_t key_length, int64_t value_length,
        int64_t header_count, int64_t headers_size)
    int ms_varint_size(int64_t n)
    uint8_t* ms_write_bytes(uint8_t* p, const uint8_t* data, int64_t length)
    uint8_t* ms_write_record(
        uint8_t* p, int64_t record_length, int64_t timestamp_delta, int64_t offset_delta,
        const uint8_t* key, int64_t key_length, const uint8_t* value, int64_t value_length,
        int64_t header_count)
    uint8_t* ms_write_uvarint(uint8_t* p, uint64_t n)
    uint8_t* ms_write_big_endian(uint8_t* p, int64_t value, int size)
    int64_t ms_read_big_endian(const uint8_t* p, int size)
