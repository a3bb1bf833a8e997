//===- Mesh.cpp - Named axes of devices -----------------------------------===//
#include "partita/Base/Layout/Mesh.h"

#include <algorithm>
#include <cassert>
#include <charconv>

using namespace partita;

static bool isIdentifier(std::string_view text) {
  auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (text.empty() || !letter(text.front()))
    return false;
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

static std::string_view trim(std::string_view text) {
  size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos)
    return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

/// A whole decimal integer and nothing else.
static bool parseInteger(std::string_view text, int64_t &value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

/// Larger than any machine that runs one job; tables by rank stay small.
static constexpr int64_t maxRanks = int64_t(1) << 20;

Expected<Mesh> Mesh::create(std::vector<Axis> axes) {
  Mesh mesh;
  for (const Axis &axis : axes) {
    if (!isIdentifier(axis.name))
      return makeError("the mesh axis name \"" + axis.name + "\" is not an identifier");
    if (mesh.find(axis.name) >= 0)
      return makeError("the mesh axis " + axis.name + " appears twice");
    if (axis.size < 1)
      return makeError("the mesh axis " + axis.name + " has size " +
                       std::to_string(axis.size) + "; sizes are at least 1");
    if (axis.size > maxRanks / mesh.ranks)
      return makeError("the mesh has more than 2^20 ranks at its axis " + axis.name +
                       " of size " + std::to_string(axis.size));
    mesh.ranks *= axis.size;
    mesh.list.push_back(axis);
  }
  return mesh;
}

Expected<Mesh> Mesh::parse(std::string_view text) {
  std::vector<Axis> axes;
  std::string_view rest = trim(text);
  while (!rest.empty()) {
    size_t comma = rest.find(',');
    std::string_view item = trim(rest.substr(0, comma));
    size_t equals = item.find('=');
    int64_t size = 0;
    if (equals == std::string_view::npos ||
        !parseInteger(trim(item.substr(equals + 1)), size))
      return makeError("expected NAME=SIZE in the mesh \"" + std::string(text) +
                       "\", got \"" + std::string(item) + "\"");
    axes.push_back({std::string(trim(item.substr(0, equals))), size});
    if (comma == std::string_view::npos)
      break;
    rest = trim(rest.substr(comma + 1));
    if (rest.empty())
      return makeError("the mesh \"" + std::string(text) + "\" ends with a comma");
  }
  return create(std::move(axes));
}

std::string Mesh::str() const {
  std::string text;
  for (const Axis &axis : list)
    text += (text.empty() ? "" : ",") + axis.name + "=" + std::to_string(axis.size);
  return text;
}

int32_t Mesh::find(std::string_view name) const {
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].name == name)
      return static_cast<int32_t>(i);
  return -1;
}

AxisList Mesh::all() const {
  AxisList result;
  for (size_t i = 0; i < list.size(); ++i)
    result.push_back(whole(static_cast<int32_t>(i)));
  return result;
}

/// Distance between ranks that differ by one along (sub-)axis `ref`.
static int64_t rankStride(const Mesh &mesh, const AxisRef &ref) {
  const std::vector<Mesh::Axis> &axes = mesh.axes();
  assert(ref.axis >= 0 && ref.axis < static_cast<int32_t>(axes.size()));
  int64_t stride = axes[ref.axis].size / (ref.pre * ref.size);
  for (size_t i = ref.axis + 1; i < axes.size(); ++i)
    stride *= axes[i].size;
  return stride;
}

int64_t Mesh::coordinate(int64_t rank, const AxisRef &ref) const {
  return rank / rankStride(*this, ref) % ref.size;
}

int64_t Mesh::coordinate(int64_t rank, const AxisList &axes) const {
  int64_t result = 0;
  for (const AxisRef &ref : axes)
    result = result * ref.size + coordinate(rank, ref);
  return result;
}

int64_t Mesh::withCoordinate(int64_t rank, const AxisList &axes, int64_t value) const {
  for (size_t i = axes.size(); i-- > 0;) {
    int64_t stride = rankStride(*this, axes[i]);
    rank += (value % axes[i].size - rank / stride % axes[i].size) * stride;
    value /= axes[i].size;
  }
  return rank;
}

std::vector<int64_t> Mesh::group(int64_t rank, const AxisList &axes) const {
  // Rank with every coordinate on `axes` zero, then one axis after the other, so that
  // the last one runs fastest.
  int64_t base = rank;
  for (const AxisRef &ref : axes)
    base -= coordinate(rank, ref) * rankStride(*this, ref);
  std::vector<int64_t> members{base};
  for (const AxisRef &ref : axes) {
    int64_t stride = rankStride(*this, ref);
    std::vector<int64_t> next;
    next.reserve(members.size() * ref.size);
    for (int64_t member : members)
      for (int64_t i = 0; i < ref.size; ++i)
        next.push_back(member + i * stride);
    members = std::move(next);
  }
  return members;
}

std::string Mesh::str(const AxisRef &ref) const {
  const Axis &axis = list[ref.axis];
  if (ref.pre == 1 && ref.size == axis.size)
    return axis.name;
  return axis.name + ":(" + std::to_string(ref.pre) + ")" + std::to_string(ref.size);
}

std::string Mesh::str(const AxisList &axes) const {
  std::string text = "{";
  for (const AxisRef &ref : axes)
    text += (text.size() > 1 ? ", " : "") + str(ref);
  return text + "}";
}

Expected<AxisRef> Mesh::parseAxis(std::string_view text) const {
  text = trim(text);
  size_t colon = text.find(':');
  std::string_view axisName = trim(text.substr(0, colon));
  int32_t axis = find(axisName);
  if (axis < 0)
    return makeError("the mesh \"" + str() + "\" has no axis \"" + std::string(axisName) +
                     "\"");
  if (colon == std::string_view::npos)
    return whole(axis);
  std::string_view part = trim(text.substr(colon + 1));
  size_t close = part.find(')');
  AxisRef ref{axis, 0, 0};
  if (part.empty() || part.front() != '(' || close == std::string_view::npos ||
      !parseInteger(trim(part.substr(1, close - 1)), ref.pre) ||
      !parseInteger(trim(part.substr(close + 1)), ref.size))
    return makeError("expected a sub-axis as NAME:(PRE)SIZE, got \"" + std::string(text) +
                     "\"");
  int64_t size = list[axis].size;
  if (ref.pre < 1 || ref.size < 1 || size % ref.pre || (size / ref.pre) % ref.size)
    return makeError("the sub-axis \"" + std::string(text) + "\" does not divide axis " +
                     list[axis].name + " of size " + std::to_string(size));
  return ref;
}

int64_t partita::product(const AxisList &axes) {
  int64_t result = 1;
  for (const AxisRef &ref : axes)
    result *= ref.size;
  return result;
}

bool partita::overlap(const AxisRef &a, const AxisRef &b) {
  if (a.axis != b.axis || a.size == 1 || b.size == 1)
    return false;
  // Apart only if the one ends at or before the other's start *and* both cuts are cuts of
  // one mixed-radix number: on 6, (1)2 and (3)2 are not independent coordinates.
  if (a.pre <= b.pre)
    return b.pre % (a.pre * a.size) != 0;
  return a.pre % (b.pre * b.size) != 0;
}

bool partita::overlap(const AxisList &a, const AxisList &b) {
  return std::any_of(a.begin(), a.end(), [&](const AxisRef &x) {
    return std::any_of(b.begin(), b.end(),
                       [&](const AxisRef &y) { return overlap(x, y); });
  });
}

AxisList partita::primes(const AxisList &axes) {
  AxisList result;
  for (const AxisRef &ref : axes) {
    int64_t pre = ref.pre, rest = ref.size;
    for (int64_t p = 2; rest > 1; ++p) {
      if (p * p > rest)
        p = rest;
      for (; rest % p == 0; rest /= p, pre *= p)
        result.push_back({ref.axis, pre, p});
    }
  }
  return result;
}

AxisList partita::canonical(const AxisList &axes) {
  AxisList result;
  for (const AxisRef &ref : axes) {
    if (ref.size == 1)
      continue;
    if (!result.empty() && result.back().axis == ref.axis &&
        result.back().pre * result.back().size == ref.pre)
      result.back().size *= ref.size;
    else
      result.push_back(ref);
  }
  return result;
}
