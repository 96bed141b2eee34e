"""The engine's time against FLOPs, beside other runtimes."""
