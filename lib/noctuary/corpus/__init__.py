"""From a memory store to the corpus: read, judge, normalise, write.

The order of the modules is the order of a row's way:

    source, sqlite_source, jsonl_source,
    palace_source                         what the store holds, untyped, in key order
    sensitive                             may it leave the store at all
    normalize                             is it a memory, and what are its fields
    sift                                  one pass over all rows that counts every one of them
    export                                memories, turns, quarantine and the report, written whole
    records, diff                         reading the result back, comparing two of them

Heavy libraries (pyarrow, duckdb) are imported inside the functions that use them.
"""

from __future__ import annotations
