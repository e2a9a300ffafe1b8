"""How it runs: definitions, jobs, schedules, resources, the command behind `make nightly`.

No asset bodies, no computing.
"""
