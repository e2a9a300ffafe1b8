"""The live overlay: what a memory store gained, changed and lost since the snapshot. Read side."""
