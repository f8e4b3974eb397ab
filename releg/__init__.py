"""Gradient estimators for discrete latent variables: the mathematics, without Lightning."""
