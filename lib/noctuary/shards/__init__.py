"""Heavy steps of a night as pure functions over record batches, run by whoever there is.

What belongs here: the seam (task, shard, fragment, runner), the two runners behind it, and the
stores that keep what they made. What does not: any step itself; tasks live with their feature.
Source: DESIGN section 6, research/ecosystem.md section 3.5. Build side.
"""
