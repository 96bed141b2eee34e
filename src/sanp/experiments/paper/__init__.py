"""The paper's tables and figures, run again."""
