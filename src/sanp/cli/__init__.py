"""The command line, the only room that prints: a file a command, each a thin shell; imports all rooms above it."""
