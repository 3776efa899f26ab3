"""What authors of models use: weights, text decoding with a cache, promptable segmentation,
torchvision without its extension.
"""
