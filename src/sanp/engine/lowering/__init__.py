"""From a trace to a native program: units, segments, and a rule for each operator."""
