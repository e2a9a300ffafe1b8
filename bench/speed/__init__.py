"""Speed of the read path, side by side with what people run today, from 5,882 to 1,000,000 rows.

How good the answers are is `bench.suite`'s.
"""
