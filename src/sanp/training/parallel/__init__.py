"""Training steps shared by several processes, each of which runs its slice of the batch."""
