"""Runs the notebooks in docs/notebooks from top to bottom, and writes what they print into them.

    python scripts/notebooks.py

`tests/test_site.py` runs them too, and keeps nothing.
"""

import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"


def run(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The notebook with the outputs of its cells, and the names that its code has left; it runs in an empty folder."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for count, cell in enumerate((each for each in notebook["cells"] if each["cell_type"] == "code"), 1):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
                exec(compile("".join(cell["source"]), f"{path.name}, cell {count}", "exec"), names)
            lines = printed.getvalue().splitlines(keepends=True)
            cell["execution_count"] = count
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
    return notebook, names


def main() -> None:
    os.environ.setdefault("COLUMNS", "100")
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook, _ = run(path)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(path.name)


if __name__ == "__main__":
    main()
