"""What `copilotd doctor` looks at: one module per part of the way from editor to model.

A check reads; it changes, fetches and starts nothing. Checks of models import torch, where it is installed.
"""
