"""How it runs: definitions, jobs, schedules, resources, the command behind `noctuary nightly`.

No asset bodies, no computing.
"""
