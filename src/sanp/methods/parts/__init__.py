"""What several methods share: stages, choices by value, densities, pixel gates."""
