//===- PlanNamesTest.cpp - Names of layers --------------------------------===//
#include "partita/Base/Bundle/Plan.h"

#include <catch2/catch.hpp>

using namespace partita;

TEST_CASE("the layer of a parameter is told by its name") {
  CHECK(layerOf("h.3.attn.c_attn.weight") == "h.3");
  CHECK(layerOf("model.layers.11.mlp.up_proj.weight") == "model.layers.11");
  CHECK(layerOf("layer1.0.conv1.weight") == "layer1.0");
  CHECK(layerOf("/encoder/layer.2/attention/MatMul") == "/encoder/layer.2");
  CHECK(layerOf("block_3.conv.weight") == "block_3");
  CHECK(layerOf("conv1.weight") == "conv1");
  CHECK(layerOf("fc.bias") == layerOf("fc.weight"));
  CHECK(layerOf("wte") == "wte");
  CHECK(layerOf("onnx::MatMul_412") == "onnx::MatMul_412");
  CHECK(layerOf("").empty());
  CHECK(layerOf("..7") == "..7");
}
