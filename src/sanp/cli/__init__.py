"""The command line, the only room that prints: a file a command."""
