"""Code that several methods share: the interface, stages, Q-learning, densities, pixel gates, networks in files."""
