"""Time against FLOPs, beside other runtimes."""
