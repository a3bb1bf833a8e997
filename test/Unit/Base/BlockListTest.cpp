//===- BlockListTest.cpp - Hashes of files, and reading against them ------===//
#include "TestFolder.h"

#include "partita/Base/Files/File.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <set>
#include <thread>

using namespace partita;

static constexpr uint64_t block = BlockList::blockBytes;

static std::span<const std::byte> bytesOf(const std::string &text) {
  return std::as_bytes(std::span(text));
}

/// Two and a half blocks and three bytes.
static std::string content() {
  std::string text(block * 2 + block / 2 + 3, '\0');
  for (size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<char>((i * 2654435761u) >> 13);
  return text;
}

static BlockList listOf(const std::string &text) {
  BlockHasher hasher;
  hasher.add(bytesOf(text));
  return hasher.finish();
}

TEST_CASE("a hash is XXH3-128 as xxhsum prints it") {
  CHECK(hashOf({}).str() == "99aa06d3014798d86001c324468d497f");
  CHECK(hashOf(bytesOf("abc")).str() == "06b05ab6733a618578af5f94892f3950");
  CHECK(parseHash("06b05ab6733a618578af5f94892f3950") == hashOf(bytesOf("abc")));
  for (const char *wrong :
       {"", "06b05ab6733a618578af5f94892f395", "06B05AB6733A618578AF5F94892F3950",
        "06b05ab6733a618578af5f94892f395g"})
    CHECK(!parseHash(wrong));
}

TEST_CASE("a hash sees every bit and the length") {
  std::string text(100, '\0');
  std::set<std::string> all = {hashOf(bytesOf(text)).str(),
                               hashOf(bytesOf(text + '\0')).str(), hashOf({}).str()};
  for (size_t i = 0; i < text.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string other = text;
      other[i] = static_cast<char>(1 << bit);
      all.insert(hashOf(bytesOf(other)).str());
    }
  CHECK(all.size() == 3 + 800);
}

TEST_CASE("a list of blocks is the same however the bytes come") {
  std::string text = content();
  BlockList whole = listOf(text);
  REQUIRE(whole.blocks.size() == 3);
  CHECK(whole.isWhole());
  CHECK(whole.fileBytes == text.size());
  for (const BlockList::Block &it : whole.blocks)
    CHECK(it.hash ==
          hashOf(bytesOf(text).subspan(it.index * block, whole.bytesOf(it.index))));
  BlockHasher hasher;
  for (size_t at = 0, step = 1; at < text.size(); at += step, step = step * 3 + 1)
    hasher.add(bytesOf(text).subspan(at, std::min(step, text.size() - at)));
  CHECK(hasher.finish().text() == whole.text());
  CHECK(BlockHasher().finish().text() == "partita-blocks 1 xxh3-128 4194304 0 0\n");

  Folder folder;
  REQUIRE(writeFile(folder / "w", text));
  auto file = InputFile::open(folder / "w");
  REQUIRE(file);
  CHECK(hashBlocks(**file, allBlocks(text.size()))->text() == whole.text());
  auto back = parseBlockList(whole.text(), "list");
  REQUIRE(back);
  CHECK(back->text() == whole.text());
}

TEST_CASE("a damaged list of blocks is refused, wherever it is damaged") {
  BlockList list = listOf(content());
  std::string text = list.text();
  for (size_t at = 0; at < text.size(); ++at)
    for (char other : {'x', ' ', '\n', 'A'}) {
      std::string damaged = text;
      damaged[at] = other;
      if (damaged != text)
        CHECK(!parseBlockList(damaged, "list"));
    }
  for (size_t length = 0; length < text.size(); ++length)
    CHECK(!parseBlockList(text.substr(0, length), "list"));
  CHECK(!parseBlockList(text + "\n", "list"));
  std::string head = "partita-blocks 1 xxh3-128 4194304 ";
  std::string hash = " " + hashOf({}).str() + "\n";
  CHECK(parseBlockList(head + "9000000 1\n2" + hash, "list"));
  for (const std::string &wrong :
       {"9000000 1\n3" + hash, "9000000 2\n2" + hash + "1" + hash,
        "9000000 2\n2" + hash + "2" + hash, "9000000 4\n" + hash, std::string("1 1 1\n")})
    CHECK(!parseBlockList(head + wrong, "list"));
}

TEST_CASE("a sample has the ends, the middle, and no more than 64 blocks") {
  CHECK(sampledBlocks(0).empty());
  CHECK(sampledBlocks(1) == std::vector<uint64_t>{0});
  CHECK(sampledBlocks(64 * block).size() == 64);
  for (uint64_t blocks : {65, 66, 1000, 1'000'000}) {
    std::vector<uint64_t> sample = sampledBlocks(blocks * block - 1);
    CHECK(sample.size() == 64);
    CHECK(std::ranges::is_sorted(sample));
    CHECK(sample.front() == 0);
    CHECK(sample.back() == blocks - 1);
    CHECK(std::ranges::find(sample, blocks / 2) != sample.end());
    CHECK(sample == sampledBlocks(blocks * block - 1));
  }
  CHECK(sampledBlocks(1000 * block) != sampledBlocks(1000 * block - 1));
}

TEST_CASE("whoever reads some of a block checks all of it, once") {
  Folder folder;
  std::string path = folder / "w", text = content();
  REQUIRE(writeFile(path, text));
  struct Read {
    uint64_t offset, bytes;
    std::set<uint64_t> touched;
  };
  const Read reads[] = {{0, 1, {0}},
                        {block - 1, 1, {0}},
                        {block - 1, 2, {0, 1}},
                        {block, block, {1}},
                        {10, 2 * block, {0, 1, 2}},
                        {text.size() - 1, 1, {2}},
                        {0, text.size(), {0, 1, 2}}};
  for (const Read &it : reads)
    for (uint64_t flipped = 0; flipped < 3; ++flipped)
      for (int way : {0, 1, 2}) { // read, check, check what is mapped
        INFO(it.offset << " " << it.bytes << " " << flipped << " " << way);
        BlockList list = listOf(text);
        list.blocks[flipped].hash.low ^= 1;
        auto file = InputFile::open(path, list, "; say");
        REQUIRE(file);
        std::vector<std::byte> into(it.bytes);
        auto read = [&]() -> Expected<void> {
          if (way == 0)
            return (*file)->read(it.offset, into);
          auto mapped = (*file)->map(it.offset, it.bytes);
          REQUIRE(mapped);
          return (*file)->check(it.offset, it.bytes, way == 1 ? nullptr : mapped->get());
        };
        auto ok = read();
        CHECK(ok.has_value() == !it.touched.contains(flipped));
        if (!ok) {
          CHECK(ok.error().message.find("w' has other bytes from " +
                                        std::to_string(flipped * block)) !=
                std::string::npos);
          CHECK(ok.error().message.ends_with("; say"));
          CHECK(!read()); // and again
          continue;
        }
        if (way == 0)
          CHECK(std::ranges::equal(into, bytesOf(text).subspan(it.offset, it.bytes)));
        uint64_t once = (*file)->blocks()->checkedBytes();
        uint64_t touched = 0;
        for (uint64_t index : it.touched)
          touched += list.bytesOf(index);
        CHECK(once == touched);
        REQUIRE(read());
        CHECK((*file)->blocks()->checkedBytes() == once);
      }
}

TEST_CASE("threads that read one file share the work of checking it") {
  Folder folder;
  std::string text = content();
  REQUIRE(writeFile(folder / "w", text));
  for (bool isDamaged : {false, true}) {
    BlockList list = listOf(text);
    if (isDamaged)
      list.blocks[1].hash.high ^= 4;
    auto file = InputFile::open(folder / "w", list, "");
    REQUIRE(file);
    std::atomic<int> failed{0};
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
          std::vector<std::byte> into(text.size());
          failed += !(*file)->read(0, into);
        });
    }
    CHECK((failed > 0) == isDamaged);
    if (!isDamaged)
      CHECK((*file)->blocks()->checkedBytes() == text.size());
  }
}

TEST_CASE("a list of another file's size is refused") {
  Folder folder;
  REQUIRE(writeFile(folder / "w", "1234"));
  auto file = InputFile::open(folder / "w", listOf("12345"), "; say");
  REQUIRE(!file);
  CHECK_THAT(file.error().message,
             Catch::Contains("has 4 bytes, its list of blocks is of a file of 5; say"));
}
