"""Removing channels for good: which must be removed together, which matter least, and the smaller network."""
