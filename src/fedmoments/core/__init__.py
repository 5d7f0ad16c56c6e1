"""From features to a classifier: moments, what they say of the classes, heads. numpy, scipy, safetensors only."""
