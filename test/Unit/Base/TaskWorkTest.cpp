//===- TaskWorkTest.cpp - What tasks compute and move ---------------------===//
#include "partita/Base/Bundle/TaskWork.h"

#include <catch2/catch.hpp>

using namespace partita;

static void check(const task::Params &params, double flops, double bytes) {
  task::Work work = task::workOf(params, *Mesh::create({{"d", 2}}));
  CHECK(work.flops == flops);
  CHECK(work.bytes == bytes);
}

TEST_CASE("A product reads each operand once, and one that is broadcast not per batch") {
  task::MatMul p;
  p.dtype = uint8_t(DType::F32);
  p.m = 3, p.n = 5, p.k = 7;
  check(p, 2 * 3 * 5 * 7, 4 * (21 + 35 + 15));
  p.batch = {{4, 21, 0, 15}};
  check(p, 2 * 4 * 3 * 5 * 7, 4 * (4 * 21 + 35 + 4 * 15));
  // A sum with a tensor that has the batch and the columns.
  p.post = {{PARTITA_POST_BINARY_ADD, 0, 0, 0b101}};
  check(p, 2 * 4 * 3 * 5 * 7, 4 * (4 * 21 + 35 + 4 * 15 + 4 * 5));
}

TEST_CASE("A product with a weight of 4 bits reads a byte for two numbers") {
  task::BlockMatMul p;
  p.dtype = uint8_t(DType::F32);
  p.m = 3, p.n = 5, p.blocks = 2, p.block = 16;
  check(p, 2 * 3 * 5 * 32, 4 * (3 * 32 + 3 * 5) + 5 * 16 + 4 * 2 * 5);
  p.zero_dtype = uint8_t(DType::U8);
  check(p, 2 * 3 * 5 * 32, 4 * (3 * 32 + 3 * 5) + 5 * 16 + (4 + 1) * 2 * 5);
}

TEST_CASE("A convolution multiplies per pixel of the side that is smaller") {
  task::Conv p;
  p.dtype = uint8_t(DType::F32);
  p.batch = 2, p.in_channels = 4, p.out_channels = 6, p.groups = 2;
  p.spatial = {{9, 4, 3, 2, 1, 0, 0}};
  // 2 images of 4 pixels, of 6 channels, each of 2 channels times 3.
  check(p, 2.0 * 2 * 4 * 6 * 2 * 3, 4 * (2 * 4 * 9 + 6 * 2 * 3 + 2 * 6 * 4));
  task::ConvBackwardFilter gradient;
  gradient.dtype = p.dtype;
  gradient.batch = 2, gradient.in_channels = 4, gradient.out_channels = 6;
  gradient.groups = 2, gradient.spatial = p.spatial;
  check(gradient, 2.0 * 2 * 4 * 6 * 2 * 3, 4 * (2 * 4 * 9 + 6 * 2 * 3 + 2 * 6 * 4));
  p.spatial = {{4, 9, 3, 2, 1, 0, 0}};
  check(task::ConvTranspose(p), 2.0 * 2 * 4 * 6 * 2 * 3,
        4 * (2 * 4 * 4 + 6 * 2 * 3 + 2 * 6 * 9));
}

TEST_CASE("Copies move bytes, kernels what is written down, messages are no work") {
  task::Copy copy;
  copy.dtype = uint8_t(DType::F32), copy.count = 10;
  check(copy, 0, 80);
  task::Fill fill;
  fill.dtype = uint8_t(DType::F32), fill.count = 10;
  check(fill, 0, 40);
  task::Kernel kernel;
  kernel.flops = 12, kernel.bytes = 34;
  check(kernel, 12, 34);
  task::AllReduce reduce;
  reduce.dtype = uint8_t(DType::F32), reduce.count = 10, reduce.group = {{0, 1, 2}};
  check(reduce, 0, 0);
}
