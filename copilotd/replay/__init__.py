"""Traces of editing sessions, played against the real program, and what was seen."""
