"""Whole runs: recipes, run folders, comparisons and results; uses all of sanp but report, cli, testing, lightning."""
