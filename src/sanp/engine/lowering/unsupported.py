"""What the native part does not know."""


class Unsupported(Exception):
    """The native part does not know this; the message says what."""
