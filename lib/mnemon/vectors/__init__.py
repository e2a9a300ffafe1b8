"""Document vectors: memoised embedding, the rotation that makes prefixes useful, the LanceDB tiers."""
