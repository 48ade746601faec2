"""How a setting is declared, checked, parsed and documented. No setting lives here.

Each package declares its own settings as a frozen dataclass whose fields come from `key`;
`node` gathers them. Nothing here reads a file, the environment or the clock.
"""

from __future__ import annotations

from millstream.config.keys import (
    REQUIRED,
    ConfigType,
    Key,
    Synonym,
    UpdateMode,
    key,
    keys_of,
)
from millstream.config.parsing import (
    from_synonyms,
    nearest_key,
    parse,
    parse_faults,
    replace,
    to_properties,
    unknown_keys,
)
from millstream.config.reference import render_reference
from millstream.config.validation import Fault, Rule, validate
from millstream.config.validators import (
    Validator,
    any_value,
    at_least,
    between,
    each,
    non_empty,
    one_of,
    subset_of,
)

__all__ = [
    "REQUIRED",
    "ConfigType",
    "Fault",
    "Key",
    "Rule",
    "Synonym",
    "UpdateMode",
    "Validator",
    "any_value",
    "at_least",
    "between",
    "each",
    "from_synonyms",
    "key",
    "keys_of",
    "nearest_key",
    "non_empty",
    "one_of",
    "parse",
    "parse_faults",
    "render_reference",
    "replace",
    "subset_of",
    "to_properties",
    "unknown_keys",
    "validate",
]
