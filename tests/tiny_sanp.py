"""The command line that knows the tiny network and its images: ``python -m tests.tiny_sanp train ...``."""

from sanp.cli import main
from tests import tiny_run

if __name__ == "__main__":
    tiny_run.install()
    main()
