"""The Saliency-and-Pruning Module (paper 3.1 to 3.3): saliencies, decisions and the gated convolution; imports core."""
