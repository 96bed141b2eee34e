"""Training to a budget (paper 3.4 and 4.1.2): the cost loss, λ and the three stages; imports core, spm and gating."""
