//===- CpuFeatures.cpp - What code needs of a CPU -------------------------===//
#include "partita/Base/CpuFeatures.h"

#include <algorithm>
#include <array>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

using namespace partita;

#if defined(__x86_64__)

namespace {

/// A register of a leaf of CPUID.
enum class Place : uint8_t {
  Basic1C,    // leaf 1
  Basic1D,    //
  Extended1C, // leaf 0x80000001
  Extended1D, //
  Basic7B,    // leaf 7
  Basic7C,    //
  Basic7D,    //
  Basic71A,   // leaf 7, subleaf 1
  Basic71D,   //
  Count
};

/// Registers that the operating system must keep: without, an instruction is illegal.
enum class Saved : uint8_t { None, Ymm, Zmm, Apx };

struct Feature {
  std::string_view name; ///< LLVM's
  Place place;
  uint8_t bit;
  Saved saved = Saved::None;
  uint8_t avx10 = 0; ///< the version of AVX10 at least
};

/// CPUID's bits as Intel's and AMD's manuals have them.
constexpr Feature features[] = {
    {"sse3", Place::Basic1C, 0},
    {"pclmul", Place::Basic1C, 1},
    {"ssse3", Place::Basic1C, 9},
    {"fma", Place::Basic1C, 12, Saved::Ymm},
    {"cx16", Place::Basic1C, 13},
    {"sse4.1", Place::Basic1C, 19},
    {"sse4.2", Place::Basic1C, 20},
    {"crc32", Place::Basic1C, 20},
    {"movbe", Place::Basic1C, 22},
    {"popcnt", Place::Basic1C, 23},
    {"aes", Place::Basic1C, 25},
    {"avx", Place::Basic1C, 28, Saved::Ymm},
    {"f16c", Place::Basic1C, 29, Saved::Ymm},
    {"cx8", Place::Basic1D, 8},
    {"cmov", Place::Basic1D, 15},
    {"mmx", Place::Basic1D, 23},
    {"sse", Place::Basic1D, 25},
    {"sse2", Place::Basic1D, 26},
    {"sahf", Place::Extended1C, 0},
    {"lzcnt", Place::Extended1C, 5},
    {"sse4a", Place::Extended1C, 6},
    {"prfchw", Place::Extended1C, 8},
    {"xop", Place::Extended1C, 11, Saved::Ymm},
    {"fma4", Place::Extended1C, 16, Saved::Ymm},
    {"tbm", Place::Extended1C, 21},
    {"64bit", Place::Extended1D, 29},
    {"bmi", Place::Basic7B, 3},
    {"avx2", Place::Basic7B, 5, Saved::Ymm},
    {"bmi2", Place::Basic7B, 8},
    {"avx512f", Place::Basic7B, 16, Saved::Zmm},
    {"avx512dq", Place::Basic7B, 17, Saved::Zmm},
    {"adx", Place::Basic7B, 19},
    {"avx512ifma", Place::Basic7B, 21, Saved::Zmm},
    {"avx512cd", Place::Basic7B, 28, Saved::Zmm},
    {"sha", Place::Basic7B, 29},
    {"avx512bw", Place::Basic7B, 30, Saved::Zmm},
    {"avx512vl", Place::Basic7B, 31, Saved::Zmm},
    {"avx512vbmi", Place::Basic7C, 1, Saved::Zmm},
    {"avx512vbmi2", Place::Basic7C, 6, Saved::Zmm},
    {"gfni", Place::Basic7C, 8},
    {"vaes", Place::Basic7C, 9, Saved::Ymm},
    {"vpclmulqdq", Place::Basic7C, 10, Saved::Ymm},
    {"avx512vnni", Place::Basic7C, 11, Saved::Zmm},
    {"avx512bitalg", Place::Basic7C, 12, Saved::Zmm},
    {"avx512vpopcntdq", Place::Basic7C, 14, Saved::Zmm},
    {"avx512vp2intersect", Place::Basic7D, 8, Saved::Zmm},
    {"avx512fp16", Place::Basic7D, 23, Saved::Zmm},
    {"sha512", Place::Basic71A, 0, Saved::Ymm},
    {"sm3", Place::Basic71A, 1, Saved::Ymm},
    {"sm4", Place::Basic71A, 2, Saved::Ymm},
    {"raoint", Place::Basic71A, 3},
    {"avxvnni", Place::Basic71A, 4, Saved::Ymm},
    {"avx512bf16", Place::Basic71A, 5, Saved::Zmm},
    {"cmpccxadd", Place::Basic71A, 7},
    {"avxifma", Place::Basic71A, 23, Saved::Ymm},
    {"movrs", Place::Basic71A, 31},
    {"avxvnniint8", Place::Basic71D, 4, Saved::Ymm},
    {"avxneconvert", Place::Basic71D, 5, Saved::Ymm},
    {"avxvnniint16", Place::Basic71D, 10, Saved::Ymm},
    {"avx10.1", Place::Basic71D, 19, Saved::Zmm, 1},
    {"avx10.2", Place::Basic71D, 19, Saved::Zmm, 2},
    {"egpr", Place::Basic71D, 21, Saved::Apx},
    {"push2pop2", Place::Basic71D, 21, Saved::Apx},
    {"ppx", Place::Basic71D, 21, Saved::Apx},
    {"ndd", Place::Basic71D, 21, Saved::Apx},
    {"ccmp", Place::Basic71D, 21, Saved::Apx},
    {"nf", Place::Basic71D, 21, Saved::Apx},
    {"cf", Place::Basic71D, 21, Saved::Apx},
    {"zu", Place::Basic71D, 21, Saved::Apx},
};

/// Answers of this host.
struct Host {
  std::array<uint32_t, static_cast<size_t>(Place::Count)> words{};
  uint64_t saved = 0; ///< XCR0
  unsigned avx10 = 0;

  uint32_t &at(Place place) { return words[static_cast<size_t>(place)]; }

  Host() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d))
      return;
    at(Place::Basic1C) = c, at(Place::Basic1D) = d;
    constexpr unsigned osxsave = 1u << 27;
    if (c & osxsave) {
      unsigned low = 0, high = 0;
      __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
      saved = (static_cast<uint64_t>(high) << 32) | low;
    }
    if (__get_cpuid(0x80000001, &a, &b, &c, &d))
      at(Place::Extended1C) = c, at(Place::Extended1D) = d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
      return;
    at(Place::Basic7B) = b, at(Place::Basic7C) = c, at(Place::Basic7D) = d;
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d))
      at(Place::Basic71A) = a, at(Place::Basic71D) = d;
    if (__get_cpuid_count(0x24, 0, &a, &b, &c, &d))
      avx10 = b & 0xff;
  }

  bool has(const Feature &feature) const {
    constexpr uint64_t ymm = 0x6, zmm = 0xe6, apx = uint64_t(1) << 19;
    uint64_t needed = feature.saved == Saved::Ymm   ? ymm
                      : feature.saved == Saved::Zmm ? zmm
                      : feature.saved == Saved::Apx ? apx
                                                    : 0;
    bool isThere = words[static_cast<size_t>(feature.place)] >> feature.bit & 1;
    return isThere && (saved & needed) == needed && avx10 >= feature.avx10;
  }
};

} // namespace

static const Feature *find(std::string_view name) {
  const auto *found = std::ranges::find(features, name, &Feature::name);
  return found == std::end(features) ? nullptr : found;
}

std::vector<std::string_view> partita::knownCpuFeatures() {
  std::vector<std::string_view> names;
  for (const Feature &feature : features)
    names.push_back(feature.name);
  return names;
}

bool partita::hasCpuFeature(std::string_view name) {
  static const Host host;
  const Feature *feature = find(name);
  return feature && host.has(*feature);
}

#else

static const void *find(std::string_view) { return nullptr; }
std::vector<std::string_view> partita::knownCpuFeatures() { return {}; }
bool partita::hasCpuFeature(std::string_view) { return false; }

#endif

Expected<void>
partita::checkCpuFeatures(const std::vector<std::string> &features,
                          const std::function<bool(std::string_view)> &has) {
  for (const std::string &name : features) {
    if (!find(name))
      return makeError("it needs the CPU feature '" + name +
                       "', which this runtime does not know: a newer compiler has made "
                       "it; install that version, or compile the model again");
    if (has ? !has(name) : !hasCpuFeature(name))
      return makeError("this CPU lacks " + name);
  }
  return {};
}
