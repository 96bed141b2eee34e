"""Whole runs: recipes, run folders, comparisons, results lines; imports every room above."""
