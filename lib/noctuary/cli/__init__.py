"""The `noctuary` command."""
