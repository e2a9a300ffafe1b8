"""Replays: keeping what a recall read, and asking the same question of the same snapshot again."""
