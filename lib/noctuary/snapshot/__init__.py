"""From a candidate to the snapshot that serves: pack, checks, publish."""
