"""The charts of a report's page and of the paper's figures, and what they are made of."""
