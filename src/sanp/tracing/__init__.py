"""Traces one forward of a network, and follows zero channels through its operators; imports core."""
