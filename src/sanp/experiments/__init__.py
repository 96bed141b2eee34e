"""Whole runs: recipes, run folders, comparisons and results; imports all rooms above it."""
