"""Document vectors.

Memoised embedding, the rotation that makes prefixes useful, the LanceDB tiers.
"""
