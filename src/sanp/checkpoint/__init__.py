"""Networks in files, small and safe to load; imports core, spm, gating and methods."""

from sanp.checkpoint.header import NETWORK_KEY, Header, read_network_file
from sanp.checkpoint.networks import add_calibration, load, save

__all__ = ["NETWORK_KEY", "Header", "add_calibration", "load", "read_network_file", "save"]
