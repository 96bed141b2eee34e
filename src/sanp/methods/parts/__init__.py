"""Code that several methods share: stages, Q-learning, densities, pixel gates, and forms of networks in files."""
