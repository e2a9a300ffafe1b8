"""docs/benchmarks/*.md, generated from the committed JSON files."""
