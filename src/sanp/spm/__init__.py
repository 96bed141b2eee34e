"""The Saliency-and-Pruning Module (paper 3.1 to 3.3): saliency, binarization, the gated convolution; imports core."""
