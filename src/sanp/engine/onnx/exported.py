"""The path of an exported file, which knows what was written."""

from pathlib import Path


class ExportedFile(type(Path())):  # type: ignore[misc]
    """A path as any other; ``skips`` and ``why`` say which of the two forms the file has."""

    skips: bool = False
    """pruned channels are never computed; otherwise they are multiplied by zero"""
    why: str = ""
    """the reason for this form: what both forms took, or what was asked for"""

    def with_reason(self, skips: bool, why: str) -> "ExportedFile":
        """This path, of a file of this form."""
        self.skips, self.why = skips, why
        return self
