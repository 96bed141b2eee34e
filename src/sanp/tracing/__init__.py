"""One forward, watched, and how zero channels travel through it, operator by operator; imports core."""
