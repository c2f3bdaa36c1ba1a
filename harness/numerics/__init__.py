"""Pure functions on tensors: how far is the target from the truth, and how far may it be?"""
