"""Channels that are removed for good: which go together, which matter least, and the smaller network."""
