"""What a run's network does, to look at: a page, figures for a paper, the explorer, predictions for image files."""
