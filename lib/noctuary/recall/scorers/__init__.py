"""Base rankings other than fusion: one module per formula of the libravdb reference."""
