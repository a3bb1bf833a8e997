//===- StoredTensorTest.cpp - Tensors in files, read in parts -------------===//
#include "partita/Base/Files/StoredTensor.h"
#include "partita/Base/Files/Npy.h"
#include "partita/Base/Files/SafeTensors.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <unistd.h>

using namespace partita;

namespace {
struct Folder {
  Folder() {
    path = std::filesystem::temp_directory_path() /
           ("partita-stored-" + std::to_string(::getpid()));
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string &name) const { return path / name; }
  std::filesystem::path path;
};

HostTensor numbers(std::vector<int64_t> shape) {
  HostTensor tensor = HostTensor::zeros(DType::F32, std::move(shape));
  for (size_t i = 0; i < tensor.bytes.size() / 4; ++i) {
    auto value = static_cast<float>(i);
    std::memcpy(tensor.bytes.data() + 4 * i, &value, 4);
  }
  return tensor;
}
} // namespace

TEST_CASE("stored tensors: a rank reads its part, and nothing else") {
  Folder folder;
  HostTensor whole = numbers({4, 3, 8, 512});
  REQUIRE(writeNpy(folder.file("x.npy"), whole));
  auto stored = openTensor(folder.file("x.npy"), "");
  REQUIRE(stored);
  CHECK(stored->shape == whole.shape);
  Mesh mesh = *Mesh::parse("a=2,b=2");
  // Batch, channels (uneven), rows and columns of pictures, and two of them.
  for (const char *text : {"[{4: a,b}, {3}, {8}, {512}]", "[{4}, {3/4: a}, {8}, {512}]",
                           "[{4}, {3}, {8: a,b}, {512}]", "[{4}, {3}, {8}, {512: a}]",
                           "[{4: a}, {3}, {8: b}, {512}]", "[{4}, {3}, {8}, {512}]"}) {
    Layout layout = *Layout::parse(text, mesh);
    uint64_t all = 0;
    for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
      SliceCopy slice(mesh, layout, rank, 4);
      std::vector<std::byte> expected(slice.localBytes()), actual(slice.localBytes());
      slice.toLocal(whole.bytes.data(), expected.data());
      auto count = readSlice(*stored, 0, slice, actual.data());
      REQUIRE(count);
      uint64_t own = 0;
      slice.forEachRun([&](uint64_t, uint64_t, uint64_t bytes) { own += bytes; });
      CHECK(*count == own);
      all += own;
      CHECK(actual == expected);
    }
    int64_t copies = mesh.numRanks() / product(layout.shardingAxes());
    CHECK(all == static_cast<uint64_t>(copies) * whole.bytes.size());
  }
}

TEST_CASE("stored tensors: short runs are read with what lies between") {
  Folder folder;
  HostTensor whole = numbers({64, 4});
  REQUIRE(writeNpy(folder.file("x.npy"), whole));
  auto stored = openTensor(folder.file("x.npy"), "");
  Mesh mesh = *Mesh::parse("a=2");
  SliceCopy slice(mesh, *Layout::parse("[{64}, {4: a}]", mesh), 1, 4);
  std::vector<std::byte> expected(slice.localBytes()), actual(slice.localBytes());
  slice.toLocal(whole.bytes.data(), expected.data());
  auto count = readSlice(*stored, 0, slice, actual.data());
  REQUIRE(count);
  CHECK(*count < whole.bytes.size());
  CHECK(actual == expected);
}

TEST_CASE("stored tensors: runs of a part go into another part, the rest of it stays") {
  Folder folder;
  HostTensor piece = numbers({4, 6});
  REQUIRE(writeNpy(folder.file("x.npy"), piece));
  auto stored = openTensor(folder.file("x.npy"), "");
  // Rows 1 and 2 and columns 0, 1 and 5 of the piece, at rows 0 and 3, columns 2 to 4.
  SliceCopy slice({{{1, 0, 1}, {2, 3, 1}}, {{0, 2, 2}, {5, 4, 1}}}, {4, 6}, {4, 5}, 4);
  HostTensor target = HostTensor::zeros(DType::F32, {4, 5});
  std::ranges::fill(target.bytes, std::byte(0x55));
  HostTensor expected = target;
  for (auto [row, from] : {std::pair(0, 1), {3, 2}})
    for (auto [column, of] : {std::pair(2, 0), {3, 1}, {4, 5}})
      std::copy_n(&piece.bytes[static_cast<size_t>(from * 6 + of) * 4], 4,
                  &expected.bytes[static_cast<size_t>(row * 5 + column) * 4]);
  REQUIRE(readRuns(*stored, 0, slice, target.bytes.data()));
  CHECK(target.bytes == expected.bytes);
}

TEST_CASE("stored tensors: members of files") {
  Folder folder;
  HostTensor whole = numbers({4, 8});
  SafeTensorsWriter writer;
  writer.declare("a", DType::F32, {4, 8});
  REQUIRE(writer.begin(folder.file("x.safetensors")));
  REQUIRE(writer.append(whole.bytes));
  REQUIRE(writer.finish());
  for (const auto &[path, name] :
       {std::pair("x.safetensors", "a"), {"x.safetensors:a", "other"}}) {
    auto stored = openTensor(folder.file(path), name);
    REQUIRE(stored);
    CHECK(readAll(*stored)->bytes == whole.bytes);
  }
  auto absent = openTensor(folder.file("x.safetensors"), "b");
  REQUIRE(!absent);
  CHECK(absent.error().message ==
        "'" + folder.file("x.safetensors") + "' has no tensor 'b'; it has a");
  auto unknown = openTensor("x.csv", "a");
  REQUIRE(!unknown);
  CHECK(unknown.error().message ==
        "'x.csv': expected a .npy, .npz, .safetensors or .pb file");
  REQUIRE(writeNpy(folder.file("y.npz"), whole));
  auto bad = openTensor(folder.file("y.npz"), "a");
  REQUIRE(!bad);
  CHECK(bad.error().message == "'" + folder.file("y.npz") + "' is not a zip file");
}

TEST_CASE("stored tensors: rows in another order") {
  Folder folder;
  // Rows of 600 floats are read by themselves, rows of two by windows of one row.
  for (int64_t length : {int64_t(600), int64_t(2)}) {
    HostTensor whole = numbers({9, length});
    REQUIRE(writeNpy(folder.file("x.npy"), whole));
    auto order =
        std::make_shared<std::vector<int64_t>>(std::vector<int64_t>{8, 0, 3, 3, 7, 1});
    HostTensor expected = HostTensor::zeros(DType::F32, {6, length});
    size_t row = 4 * static_cast<size_t>(length);
    for (size_t i = 0; i < order->size(); ++i)
      std::memcpy(expected.bytes.data() + i * row,
                  whole.bytes.data() + static_cast<size_t>((*order)[i]) * row, row);
    StoredTensor inMemory{DType::F32, whole.shape, nullptr, 0,
                          std::make_shared<HostTensor>(whole)};
    Mesh mesh = *Mesh::parse("a=2");
    auto rowsOf = [&](int64_t begin, int64_t end) {
      HostTensor part = HostTensor::zeros(DType::F32, {end - begin, length});
      std::memcpy(part.bytes.data(),
                  whole.bytes.data() + static_cast<size_t>(begin) * row,
                  part.bytes.size());
      return part;
    };
    StoredTensor middle{
        DType::F32, {1, length}, nullptr, 0, std::make_shared<HostTensor>(rowsOf(3, 4))};
    REQUIRE(writeNpy(folder.file("front.npy"), rowsOf(0, 3)));
    REQUIRE(writeNpy(folder.file("none.npy"), rowsOf(3, 3)));
    REQUIRE(writeNpy(folder.file("back.npy"), rowsOf(4, 9)));
    StoredTensor joined = joinRows({*openTensor(folder.file("front.npy"), ""),
                                    *openTensor(folder.file("none.npy"), ""), middle,
                                    *openTensor(folder.file("back.npy"), "")});
    CHECK(joined.shape == whole.shape);
    CHECK(readAll(joined)->bytes == whole.bytes);
    for (const StoredTensor &from :
         {*openTensor(folder.file("x.npy"), ""), inMemory, joined}) {
      StoredTensor taken = takeRows(from, order);
      CHECK(taken.shape == expected.shape);
      CHECK(readAll(taken)->bytes == expected.bytes);
      std::string columns = std::to_string(length);
      for (const std::string &text :
           {"[{6: a}, {" + columns + "}]", "[{6/8: a}, {" + columns + "}]",
            "[{6}, {" + columns + ": a}]"})
        for (int64_t rank = 0; rank < 2; ++rank) {
          SliceCopy slice(mesh, *Layout::parse(text, mesh), rank, 4);
          std::vector<std::byte> own(slice.localBytes()), actual(slice.localBytes());
          slice.toLocal(expected.bytes.data(), own.data());
          auto count = readSlice(taken, 0, slice, actual.data());
          REQUIRE(count);
          CHECK(*count <= expected.bytes.size());
          CHECK(actual == own);
        }
      // The second half of the rows, as a slot of an input has it.
      SliceCopy half(mesh, *Layout::parse("[{3}, {" + columns + "}]", mesh), 0, 4);
      std::vector<std::byte> actual(half.localBytes());
      REQUIRE(readSlice(taken, 3 * row, half, actual.data()));
      CHECK(std::equal(actual.begin(), actual.end(), expected.bytes.begin() + 3 * row));
    }
  }
}
