"""Tuning in plain torch. These modules import torch at their top: the engine imports them when it is made."""
