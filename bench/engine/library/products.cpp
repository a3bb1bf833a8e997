//===- products.cpp - Speed of single products by any oneDNN ---------------===//
//
// Built by table.py with the headers of a oneDNN of version 2 or 3. Reads problems as
// `bench-engine THREADS -` does and prints milliseconds and the implementation; null
// where there is none.
//
//===----------------------------------------------------------------------===//
#include <dnnl.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

using namespace dnnl;
using Type = memory::data_type;
using Tag = memory::format_tag;

namespace {
struct Types {
  Type left, right, result, bias;
  bool hasBias;
};

/// A primitive with memory for what it reads and writes.
struct Ready {
  primitive made;
  std::unordered_map<int, memory> operands;
  std::string implementation;
};
} // namespace

static std::optional<Types> typesOf(const std::string &name) {
  if (name == "u8s8")
    return Types{Type::u8, Type::s8, Type::s32, Type::s32, false};
  if (name == "f32")
    return Types{Type::f32, Type::f32, Type::f32, Type::f32, true};
  if (name == "bf16")
    return Types{Type::bf16, Type::bf16, Type::bf16, Type::f32, true};
  if (name == "f16")
    return Types{Type::f16, Type::f16, Type::f16, Type::f32, true};
  return std::nullopt;
}

template <typename Desc>
static Ready ready(const Desc &desc, const engine &cpu, bool hasBias, primitive made) {
  Ready result{std::move(made), {}, desc.impl_info_str()};
  auto add = [&](int place, const memory::desc &shape) {
    memory &operand = result.operands.emplace(place, memory(shape, cpu)).first->second;
    // Numbers that are far from denormal in every type, and differ.
    auto *bytes = static_cast<unsigned char *>(operand.get_data_handle());
    for (size_t i = 0; i < shape.get_size(); ++i)
      bytes[i] = static_cast<unsigned char>(0x38 + i % 7);
  };
  add(DNNL_ARG_SRC, desc.src_desc());
  add(DNNL_ARG_WEIGHTS, desc.weights_desc());
  add(DNNL_ARG_DST, desc.dst_desc());
  if (hasBias)
    add(DNNL_ARG_BIAS, desc.query_md(query::weights_md, 1));
  return result;
}

static Ready matmulOf(const Types &t, std::istream &in, const engine &cpu) {
  memory::dim m = 0, n = 0, k = 0;
  in >> m >> n >> k;
  const memory::desc a({m, k}, t.left, Tag::ab), b({k, n}, t.right, Tag::any);
  const memory::desc c({m, n}, t.result, Tag::ab), bias({1, n}, t.bias, Tag::ab);
#if DNNL_VERSION_MAJOR >= 3
  const auto desc = t.hasBias ? matmul::primitive_desc(cpu, a, b, bias, c)
                              : matmul::primitive_desc(cpu, a, b, c);
#else
  const auto desc = matmul::primitive_desc(
      t.hasBias ? matmul::desc(a, b, bias, c) : matmul::desc(a, b, c), cpu);
#endif
  return ready(desc, cpu, t.hasBias, matmul(desc));
}

static Ready convOf(const Types &t, std::istream &in, const engine &cpu) {
  memory::dim from = 0, to = 0, size = 0, kernel = 0, stride = 0, groups = 0;
  in >> from >> to >> size >> kernel >> stride >> groups;
  const memory::dim pad = kernel / 2, out = (size + 2 * pad - kernel) / stride + 1;
  const memory::desc a({1, from, size, size}, t.left, Tag::nhwc);
  const memory::desc b =
      groups > 1 ? memory::desc({groups, to / groups, from / groups, kernel, kernel},
                                t.right, Tag::any)
                 : memory::desc({to, from, kernel, kernel}, t.right, Tag::any);
  const memory::desc c({1, to, out, out}, t.result, Tag::nhwc),
      bias({to}, t.bias, Tag::a);
  const memory::dims strides{stride, stride}, pads{pad, pad};
  const auto kind = prop_kind::forward_inference;
  const auto way = algorithm::convolution_auto;
  using Conv = convolution_forward;
#if DNNL_VERSION_MAJOR >= 3
  const auto desc =
      t.hasBias ? Conv::primitive_desc(cpu, kind, way, a, b, bias, c, strides, pads, pads)
                : Conv::primitive_desc(cpu, kind, way, a, b, c, strides, pads, pads);
#else
  const auto desc = Conv::primitive_desc(
      t.hasBias ? Conv::desc(kind, way, a, b, bias, c, strides, pads, pads)
                : Conv::desc(kind, way, a, b, c, strides, pads, pads),
      cpu);
#endif
  return ready(desc, cpu, t.hasBias, Conv(desc));
}

/// Milliseconds, faster than two thirds of the runs: others use the machine.
static double time(Ready &ready, stream &on) {
  std::vector<double> times;
  for (int i = 0; i < 30; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ready.made.execute(on, ready.operands);
    on.wait();
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + 10, times.end());
  return 1e3 * times[10];
}

int main() {
  const engine cpu(engine::kind::cpu, 0);
  stream on(cpu);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::string kind, type;
    in >> kind >> type;
    const auto types = typesOf(type);
    if (!types || (kind != "matmul" && kind != "conv")) {
      std::fprintf(stderr, "no problem: '%s'\n", line.c_str());
      return 1;
    }
    try {
      Ready made = kind == "matmul" ? matmulOf(*types, in, cpu) : convOf(*types, in, cpu);
      std::printf("[%.6f, \"%s\"]\n", time(made, on), made.implementation.c_str());
    } catch (const error &) {
      std::printf("null\n");
    }
    std::fflush(stdout);
  }
}
