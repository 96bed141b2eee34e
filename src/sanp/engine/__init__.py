"""The fast twin of a gated network: the same outputs, and a pruned channel is never computed."""
