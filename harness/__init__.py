"""Model-zoo conformance harness: does a model give the right numbers on a PyTorch backend?"""
