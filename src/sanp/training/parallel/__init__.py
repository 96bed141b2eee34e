"""One training step by several processes, each on its slice of the batch."""
