"""Training to a budget (paper 3.4 and 4.1.2): cost loss, λ, the three stages; imports core, spm, tracing and gating."""
