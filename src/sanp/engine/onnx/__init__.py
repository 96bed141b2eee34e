"""From a network to an ONNX file whose runtime skips pruned channels too."""
