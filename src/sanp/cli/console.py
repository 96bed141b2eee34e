"""The console of the commands that several processes may run together: only the first process prints."""

from rich.console import Console

console = Console()
