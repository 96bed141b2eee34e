"""What a program cannot express."""


class Unsupported(Exception):
    """A program cannot express this; the message says what."""
