"""The charts of a report's page, one file each."""
