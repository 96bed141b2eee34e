"""The explorer: a page on this machine that runs a network on images and lets its budget be moved."""
