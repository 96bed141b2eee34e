"""Training to a budget (paper 3.4 and 4.1.2): cost term, λ, the three stages; imports core, spm and gating."""
