"""A run to look at: page, figures, explorer, predictions; imports core, data, gating, evaluation, experiments."""
