"""The larger commands of the command line, one file each; cli.py lists them."""
