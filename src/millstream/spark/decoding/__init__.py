"""Values to typed columns, in the source: `valueFormat` json, avro or protobuf.

The readers ask `make_decoder` once and pass every Arrow batch through it. The column `value`
becomes a struct; what cannot be decoded goes where `onDecodeError` says and fails no job unless
asked to. Nothing here reads a topic.
"""

from __future__ import annotations

from millstream.spark.decoding.decoder import ERROR_FIELD, Decoder, make_decoder
from millstream.spark.decoding.options import OPTION_NAMES, DecodingOptions

__all__ = ["ERROR_FIELD", "OPTION_NAMES", "Decoder", "DecodingOptions", "make_decoder"]
