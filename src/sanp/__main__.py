"""``python -m sanp``: the command line, also as ``torchrun --nproc-per-node=N -m sanp``."""

from sanp.cli.app import main

if __name__ == "__main__":
    main()
