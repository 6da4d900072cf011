"""Backbones worth trying first. Needs no torch."""


def known_backbones() -> list[tuple[str, str]]:
    """Names worth trying first, each with one line about it; any other timm ViT or CNN works as well."""
    return [
        ("tiny", "bundled: ViT of 0.6 M parameters for 64 px, self-supervised on drawn creatures; no download"),
        ("vit_base_patch16_224.dino", "DINO ViT-B/16: the backbone of the published GCD results"),
        ("vit_small_patch16_224.dino", "DINO ViT-S/16: a quarter of the cost of ViT-B"),
        ("vit_small_patch14_dinov2", "DINOv2 ViT-S/14"),
        ("vit_base_patch14_dinov2", "DINOv2 ViT-B/14"),
        ("vit_base_patch14_reg4_dinov2", "DINOv2 ViT-B/14 with 4 register tokens"),
        ("vit_small_patch16_dinov3", "DINOv3 ViT-S/16 (DINOv3 licence)"),
        ("vit_base_patch16_dinov3", "DINOv3 ViT-B/16 (DINOv3 licence)"),
        ("convnext_tiny.dinov3_lvd1689m", "DINOv3 ConvNeXt-T, a CNN (DINOv3 licence)"),
    ]
