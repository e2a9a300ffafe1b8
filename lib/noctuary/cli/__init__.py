"""The `noctuary` command: the read side for people. One module per command; no logic of its own."""
