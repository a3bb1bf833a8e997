//===- TensorFilesTest.cpp - npy, safetensors and bundle files ------------===//
#include "TestFolder.h"

#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Files/File.h"
#include "partita/Base/Files/Npy.h"
#include "partita/Base/Files/SafeTensors.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <filesystem>
#include <set>
#include <unistd.h>

using namespace partita;

static std::string npy(const std::string &dict, const std::string &data) {
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(dict.size() & 0xff);
  out += static_cast<char>(dict.size() >> 8);
  return out + dict + data;
}

TEST_CASE("npy arrays of every type survive a round trip") {
  Folder folder;
  for (int t = 0; t <= static_cast<int>(DType::Bool); ++t)
    for (std::vector<int64_t> shape : {std::vector<int64_t>{}, {3}, {2, 3}, {0, 4}}) {
      HostTensor tensor = HostTensor::zeros(static_cast<DType>(t), shape);
      for (size_t i = 0; i < tensor.bytes.size(); ++i)
        tensor.bytes[i] = static_cast<std::byte>(i & 1);
      REQUIRE(writeNpy(folder / "x.npy", tensor));
      auto back = readNpy(folder / "x.npy");
      REQUIRE(back);
      CHECK(back->type == tensor.type);
      CHECK(back->shape == tensor.shape);
      CHECK(back->bytes == tensor.bytes);
      CHECK(readFile(folder / "x.npy")->size() % 64 == tensor.bytes.size() % 64);
    }
}

TEST_CASE("npy: Fortran order is transposed, other byte orders and types refused") {
  Folder folder;
  std::string path = folder / "x.npy";
  std::string data("\1\2\3\4\5\6", 6);
  REQUIRE(writeFile(
      path, npy("{'descr': '|i1', 'fortran_order': True, 'shape': (2, 3), }", data)));
  auto tensor = readNpy(path);
  REQUIRE(tensor);
  std::vector<int8_t> expected = {1, 3, 5, 2, 4, 6};
  CHECK(std::memcmp(tensor->bytes.data(), expected.data(), 6) == 0);
  auto message = [&](const std::string &bytes) {
    REQUIRE(writeFile(path, bytes));
    auto result = readNpy(path);
    REQUIRE(!result);
    return result.error().message;
  };
  CHECK_THAT(message(npy("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }",
                         std::string(4, '\0'))),
             Catch::Contains("big-endian (>f4)"));
  CHECK_THAT(message(npy("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }",
                         std::string(8, '\0'))),
             Catch::Contains("element type <c8 is not supported"));
  CHECK_THAT(message(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
                         std::string(4, '\0'))),
             Catch::Contains("expected 8 bytes of data, got 4"));
  CHECK_THAT(message("nothing of the kind"), Catch::Contains("is not a .npy file"));
  CHECK_THAT(message(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}",
                         std::string(4, '\0'))),
             Catch::Contains("structured array"));
}

TEST_CASE("safetensors files are aligned, read back, and checked") {
  Folder folder;
  std::string path = folder / "w.safetensors";
  SafeTensorsWriter writer;
  writer.declare("a", DType::F32, {3});
  writer.declare("b", DType::BF16, {2, 5});
  auto entries = writer.begin(path, {{"format", "pt"}});
  REQUIRE(entries);
  std::vector<std::byte> a(12, std::byte{1}), b(20, std::byte{2});
  REQUIRE(writer.append(a));
  CHECK_THAT(SafeTensorsWriter().finish().error().message,
             Catch::Contains("cannot write"));
  REQUIRE(writer.append(b));
  REQUIRE(writer.finish());
  auto file = readSafeTensors(path);
  REQUIRE(file);
  const SafeTensorEntry *entry = file->find("b");
  REQUIRE(entry);
  CHECK(entry->offset == (*entries)[1].offset);
  CHECK(entry->offset % 64 == 0);
  CHECK(entry->type == DType::BF16);
  CHECK(std::memcmp(file->bytes(*entry).data(), b.data(), 20) == 0);
  CHECK(file->metadata.front().second == "pt");

  auto message = [&](const std::string &json, size_t dataBytes) {
    uint64_t length = json.size();
    std::string bytes(reinterpret_cast<const char *>(&length), 8);
    REQUIRE(writeFile(path, bytes + json + std::string(dataBytes, '\0')));
    auto result = readSafeTensors(path);
    REQUIRE(!result);
    return result.error().message;
  };
  CHECK_THAT(message(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4),
             Catch::Contains("the range leaves the file"));
  CHECK_THAT(message(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
             Catch::Contains("the range has 4 bytes, the shape needs 8"));
  CHECK_THAT(message(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},
                         "b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
                     8),
             Catch::Contains("tensors a and b overlap"));
  REQUIRE(writeFile(path, std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)));
  CHECK_THAT(readSafeTensors(path).error().message, Catch::Contains("truncated"));
}

TEST_CASE("a bundle is written aside, renamed, and read back") {
  Folder folder;
  std::string out = folder / "bundle";
  Bundle bundle;
  bundle.mesh = *Mesh::parse("dp=2,tp=4");
  bundle.cpuFeatures = {"avx2"};
  bundle.entries = {{"main", {{"stage-0.so", 1024, 64, 0}}}};
  bundle.weightFiles = {{"weights.safetensors", 100, "weights-0.blocks"},
                        {"/m/w.bin", 7, "weights-1.blocks", "w.bin", "../w.bin", 1, 2}};
  {
    auto writer = BundleWriter::create(out);
    REQUIRE(writer);
    REQUIRE(writeFile(writer->path("stage-0.so"), "x"));
    CHECK(!std::filesystem::exists(out));
  } // not committed: nothing stays
  CHECK(std::filesystem::is_empty(folder.path));
  auto writer = BundleWriter::create(out);
  REQUIRE(writer);
  CHECK_THAT(writer->commit(bundle).error().message, Catch::Contains("stage-0.so"));
  REQUIRE(writeFile(writer->path("stage-0.so"), "x"));
  REQUIRE(writer->commit(bundle));
  CHECK(BundleWriter::create(out).error().message ==
        "output '" + out + "' exists already");
  CHECK_THAT(BundleWriter::create(folder / "no/such/place").error().message,
             Catch::Contains("cannot create output folder"));
  auto back = readBundle(out);
  REQUIRE(back);
  std::string library = "x";
  bundle.entries[0].stages[0].hash = hashOf(std::as_bytes(std::span(library)));
  CHECK(back->json() == bundle.json());
  CHECK(back->numRanks() == 8);
}

TEST_CASE("a bundle of another version, or with a foreign path, is refused") {
  Folder folder;
  Bundle bundle;
  bundle.entries = {{"main", {{"stage-0.so"}}}};
  bundle.entries[0].flags.stop = "lost";
  bundle.weightFiles = {{"weights.safetensors", 4, "weights-0.blocks"},
                        {"/m/w.bin", 7, "weights-1.blocks", "w.bin", "../w.bin", 1, 2}};
  auto message = [&](const std::string &from, const std::string &to) {
    std::string text = bundle.json();
    size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    REQUIRE(writeFile(folder / "bundle.json", text.replace(at, from.size(), to)));
    auto result = readBundle(folder.path);
    REQUIRE(!result);
    return result.error().message;
  };
  CHECK_THAT(message("\"format\": 5", "\"format\": 3"),
             Catch::Contains("has format 3") &&
                 Catch::Contains("compile the model again"));
  CHECK_THAT(message("stage-0.so", "../evil.so"), Catch::Contains("leaves the bundle"));
  CHECK_THAT(message("\"stop\"", "\"halt\""), Catch::Contains("halt"));
  CHECK_THAT(message("\"hash\": \"", "\"hash\": \"12"),
             Catch::Contains("expected 32 hexadecimal digits"));
  for (const char *path : {"weights.safetensors", "weights-0.blocks", "weights-1.blocks"})
    CHECK_THAT(message(path, "../evil"), Catch::Contains("leaves the bundle"));
  CHECK_THAT(message("\"location\": \"w.bin", "\"location\": \"../w.bin"),
             Catch::Contains("leaves the bundle"));
  CHECK_THAT(message("/m/w.bin", "m/w.bin"),
             Catch::Contains("expected an absolute path"));
  CHECK_THAT(message("\"ranks\": 1", "\"ranks\": 3"),
             Catch::Contains("ranks is 3, the mesh has 1"));
  CHECK_THAT(readBundle(folder / "none").error().message,
             Catch::Contains("cannot open bundle"));
}
