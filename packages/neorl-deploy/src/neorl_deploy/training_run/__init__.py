"""A finished run, read without the training stack."""
