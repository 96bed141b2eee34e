"""A network of anybody's in, a gated network and what it costs out (paper 4.1.1); imports core, spm and tracing."""
