"""Categories of image files: python run_onnx.py image.jpg …   (needs onnxruntime, numpy and Pillow alone)"""

import sys

import checked  # noqa: F401 - first, so that nothing damaged is used
import onnxruntime
from images import BadImage
from prepare import HERE, line, shown, view

session = onnxruntime.InferenceSession(str(HERE / "model.onnx"), providers=["CPUExecutionProvider"])
for path in sys.argv[1:]:
    try:
        category, confidence, unlike = session.run(["category", "confidence", "unlike"], {"images": view(path)})
        print(line(path, category[0], confidence[0], unlike[0]))
    except BadImage as reason:
        print(f"{shown(path)} skipped: {reason}", file=sys.stderr)
