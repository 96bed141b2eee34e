"""The explorer: a local page to try a run's network on images, with a smaller or a larger budget."""
