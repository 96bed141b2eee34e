"""Text that only prints: names come from outside, and may hold codes for the terminal or turn the text around them."""


def plain(value: object) -> str:
    """The value as text that only prints: what is not printable, such as an escape code, is escaped as ``\\x1b``."""
    text = str(value)
    return text if text.isprintable() else "".join(each if each.isprintable() else escaped(each) for each in text)


def plain_lines(text: str) -> str:
    """The same for text of several lines, whose ends are kept."""
    return "\n".join(map(plain, text.split("\n")))


def escaped(character: str) -> str:
    """A character by its code, as Python writes it in a string."""
    return character.encode("unicode_escape").decode("ascii")
