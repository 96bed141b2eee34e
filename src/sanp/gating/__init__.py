"""Turns any convolutional network into a gated one, and counts its FLOPs (paper 4.1.1); imports core, spm, tracing."""
