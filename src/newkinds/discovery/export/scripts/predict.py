"""Categories of image files: python predict.py image.jpg …   (needs torch and timm, with what they install)"""

import sys

import checked  # noqa: F401 - first, so that nothing damaged is used
import torch
from images import BadImage
from model import classify
from prepare import HERE, line, shown, view
from safetensors.torch import load_file

weights = load_file(HERE / "model.safetensors")
for path in sys.argv[1:]:
    try:
        category, confidence, unlike, probabilities, embedding = classify(weights, torch.from_numpy(view(path)))
        print(line(path, int(category), float(confidence), float(unlike)))
    except BadImage as reason:
        print(f"{shown(path)} skipped: {reason}", file=sys.stderr)
