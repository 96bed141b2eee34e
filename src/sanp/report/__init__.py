"""Look instead of read: the page of a run, its figures for a paper, the explorer, and predictions for image files."""
