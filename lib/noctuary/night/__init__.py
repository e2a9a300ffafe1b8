"""The night: each stage wired to its inputs on disk.

One module per group of assets; no Dagster, no algorithm.

A stage reads the artifacts of the stages before it, calls one feature package and writes its own
artifacts atomically. Everything it needs is a `Night`; everything it says is a `StageResult`.
"""
