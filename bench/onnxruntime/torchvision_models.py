#!/usr/bin/env python3
"""Writes whole detectors of torchvision, as torch's exporter of TorchScript writes them,
with random weights: folders for compare.py.

usage: torchvision_models.py OUT_DIR [NAME…]
       torchvision_models.py --list

Needs a Python with torch 2.13 and torchvision 0.28. The last layer of each head is
scaled, so that scores and boxes are as spread as those of a trained detector.
"""
import json
import pathlib
import sys
import warnings

import onnx
import torch
from onnx import numpy_helper
from torch import library

warnings.filterwarnings("ignore")

#: Operators of torchvision that its wheel has compiled, as far as detectors use them.
SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor")


def best_first(boxes, scores, threshold):
    return scores.argsort(descending=True, stable=True)


def centres(image, boxes, scale, height, width, *_):
    """The features in the middle of each bin of a box."""
    x0, y0, x1, y1 = (boxes[:, 1:] * scale).T[..., None, None]
    across = (torch.arange(width) + 0.5) / width
    down = ((torch.arange(height) + 0.5) / height)[:, None]
    x, y = torch.broadcast_tensors(x0 + (x1 - x0) * across, y0 + (y1 - y0) * down)
    grid = torch.stack([x / image.shape[3], y / image.shape[2]], -1) * 2 - 1
    found = torch.nn.functional.grid_sample(image[:1], grid.flatten(0, 1)[None],
                                            align_corners=False)
    return found[0].reshape(image.shape[1], len(boxes), height, width).transpose(0, 1)


def has_ops():
    return True


def import_torchvision():
    """Torchvision's wheel on PyPI needs libraries of CUDA. Where they are missing, its
    compiled operators are replaced by simple ones: an export traces them, and their
    results do not count but for their form."""
    try:
        import torchvision
        if torchvision.extension._has_ops():
            return
    except RuntimeError:  # its operators are not there
        for name in [n for n in sys.modules if n.split(".")[0] == "torchvision"]:
            del sys.modules[name]
    operators = library.Library("torchvision", "DEF")
    for schema in SCHEMAS:
        operators.define(schema)
    operators.impl("nms", best_first, "CPU")
    operators.impl("roi_align", centres, "CPU")
    import_torchvision.operators = operators  # registered as long as they live
    import torchvision
    for module in ("extension", "ops.roi_align"):
        sys.modules[f"torchvision.{module}"]._has_ops = has_ops
    torchvision.ops._register_onnx_ops._register_custom_op()


#: name: constructor, extent of the picture, extents of (scores, boxes): module, mean and
#: deviation of what its last layers give.
DETECTORS = {
    "ssdlite": ("ssdlite320_mobilenet_v3_large", 320, {
        "head.classification_head": (0, 2), "head.regression_head": (0, 1)}),
    "ssd": ("ssd300_vgg16", 300, {
        "head.classification_head": (0, 2), "head.regression_head": (0, 1)}),
    "retinanet": ("retinanet_resnet50_fpn", 320, {
        "head.classification_head.cls_logits": (-5, 1.5),
        "head.regression_head.bbox_reg": (0, 0.5)}),
    "fcos": ("fcos_resnet50_fpn", 320, {
        "head.classification_head.cls_logits": (-5, 1.5),
        "head.regression_head.bbox_reg": (2, 1)}),
    "faster_rcnn": ("fasterrcnn_resnet50_fpn", 320, {
        "rpn.head.cls_logits": (0, 2), "rpn.head.bbox_pred": (0, 0.5),
        "roi_heads.box_predictor.cls_score": (0, 3),
        "roi_heads.box_predictor.bbox_pred": (0, 1)}),
    "faster_rcnn_mobile": ("fasterrcnn_mobilenet_v3_large_320_fpn", 320, {
        "rpn.head.cls_logits": (0, 2), "rpn.head.bbox_pred": (0, 0.5),
        "roi_heads.box_predictor.cls_score": (0, 3),
        "roi_heads.box_predictor.bbox_pred": (0, 1)}),
}


def last_layers(head):
    """Layers of a head that give scores, or boxes: one, or one per level."""
    entries = getattr(head, "module_list", [head])
    return [[layer for layer in entry.modules() if hasattr(layer, "weight")][-1]
            for entry in entries]


def spread(model, image, layer, mean, deviation):
    """Scales a layer: each of its channels has this mean and deviation over all places
    and levels of the picture, as training would give them."""
    given = []
    hook = layer.register_forward_hook(lambda layer, inputs, result: given.append(
        result.transpose(0, 1).flatten(1)))
    model([image])
    hook.remove()
    result = torch.cat(given, 1)
    if result.shape[1] == 1:
        return
    now, by = result.mean(1), deviation / (result.std(1) + 1e-12)
    layer.weight.mul_(by.reshape(-1, *[1] * (layer.weight.dim() - 1)))
    if layer.bias is None:
        layer.bias = torch.nn.Parameter(torch.zeros_like(now))
    layer.bias.sub_(now).mul_(by).add_(mean)


def normalize(model, image):
    """Has each batch normalization know the mean and variance of its operand, without
    which the values of a deep network vanish."""
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.train()
        norm.momentum = 1
    model.backbone(torch.stack([image, image.flip(1)]))
    for norm in norms:
        norm.eval()


def picture(extent):
    """Patches of colour with noise on them."""
    patches = torch.rand(1, 3, 12, 12)
    smooth = torch.nn.functional.interpolate(patches, (extent, extent), mode="bilinear")
    return (0.9 * smooth + 0.1 * torch.rand(1, 3, extent, extent))[0]


def write(name, folder):
    from torchvision.models import detection
    constructor, extent, heads = DETECTORS[name]
    torch.manual_seed(3)
    model = getattr(detection, constructor)(weights=None, weights_backbone=None).eval()
    image = picture(extent)
    (folder / "inputs").mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        normalize(model, image)
        for path, (mean, deviation) in heads.items():
            for layer in last_layers(model.get_submodule(path)):
                spread(model, image, layer, mean, deviation)
        torch.onnx.export(model, ([image],), str(folder / "model.onnx"), dynamo=False,
                          opset_version=17, input_names=["image"])
    (folder / "inputs/input_0.pb").write_bytes(
        numpy_helper.from_array(image.numpy(), "image").SerializeToString())
    (folder / "case.json").write_text(json.dumps({"inputs": ["image"], "shapes": {}}))
    nodes = len(onnx.load(folder / "model.onnx", load_external_data=False).graph.node)
    print(f"{name}: {nodes} nodes", flush=True)


def main():
    if sys.argv[1:2] == ["--list"]:
        print("\n".join(DETECTORS))
        return
    import_torchvision()
    for name in sys.argv[2:] or DETECTORS:
        write(name, pathlib.Path(sys.argv[1]) / name)


if __name__ == "__main__":
    main()
