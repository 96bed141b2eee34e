"""The command line, the only room that prints: a file a command, each a thin shell over functions that scripts call."""
