"""Weights that come with the package; README.md is their card."""
