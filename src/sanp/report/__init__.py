"""A run to look at: a page, figures for a paper, the explorer, predictions for images; imports all rooms above it."""
