"""A month of nights with recall between them: does what was injected come back as memory?"""
