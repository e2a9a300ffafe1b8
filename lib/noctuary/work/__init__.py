"""How a night works: stages, remembered results, the lock, and who runs heavy steps."""
