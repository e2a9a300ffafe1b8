"""From texts to vectors: encoders, tiers and their search."""
