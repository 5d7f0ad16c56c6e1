"""Networks in plain torch. The only modules that import torch at their top: the loaders import them when asked."""
