//===- BlockList.cpp - Hashes of a file by blocks of 4 MiB ----------------===//
#include "partita/Base/Files/BlockList.h"

#include "partita/Base/Files/File.h"

#include <algorithm>
#include <charconv>
#include <set>

using namespace partita;

/// The first words of a list; the number is raised when an older reader could misread a
/// newer list.
static constexpr std::string_view heading = "partita-blocks 1 xxh3-128 4194304 ";

const BlockList::Block *BlockList::find(uint64_t index) const {
  // The place in a whole list is known.
  if (isWhole())
    return index < blocks.size() ? &blocks[index] : nullptr;
  auto at = std::ranges::lower_bound(blocks, index, {}, &Block::index);
  return at != blocks.end() && at->index == index ? &*at : nullptr;
}

uint64_t BlockList::bytesOf(uint64_t index) const {
  return std::min(blockBytes, fileBytes - index * blockBytes);
}

std::string BlockList::text() const {
  std::string out(heading);
  out += std::to_string(fileBytes) + " " + std::to_string(blocks.size()) + "\n";
  for (const Block &block : blocks)
    out += std::to_string(block.index) + " " + block.hash.str() + "\n";
  return out;
}

/// Takes a number and the character behind it off the front of the text.
static bool takeNumber(std::string_view &text, char behind, uint64_t &number) {
  const char *end = text.data() + text.size();
  auto [stop, status] = std::from_chars(text.data(), end, number);
  if (status != std::errc() || stop == end || *stop != behind)
    return false;
  text.remove_prefix(static_cast<size_t>(stop + 1 - text.data()));
  return true;
}

Expected<BlockList> partita::parseBlockList(std::string_view text,
                                            const std::string &where) {
  BlockList list;
  uint64_t count = 0;
  if (!text.starts_with(heading))
    return makeError("'" + where + "' is not a list of blocks that this version reads");
  text.remove_prefix(heading.size());
  if (!takeNumber(text, ' ', list.fileBytes) || !takeNumber(text, '\n', count) ||
      count > list.numBlocks())
    return makeError("'" + where + "', line 1: expected a size and a number of blocks");
  list.blocks.reserve(std::min<uint64_t>(count, text.size() / 32));
  for (uint64_t line = 2; line < count + 2; ++line) {
    BlockList::Block block;
    std::optional<Hash128> hash;
    if (takeNumber(text, ' ', block.index) && text.size() > 32 && text[32] == '\n')
      hash = parseHash(text.substr(0, 32));
    bool ascends = list.blocks.empty() || block.index > list.blocks.back().index;
    if (!hash || !ascends || block.index >= list.numBlocks())
      return makeError("'" + where + "', line " + std::to_string(line) +
                       ": expected the number of a block and its hash");
    block.hash = *hash;
    list.blocks.push_back(block);
    text.remove_prefix(33);
  }
  if (!text.empty())
    return makeError("'" + where + "' goes on behind its " + std::to_string(count) +
                     " blocks");
  return list;
}

Expected<BlockList> partita::readBlockList(const std::string &path) {
  auto file = MappedFile::open(path);
  if (!file)
    return tl::unexpected(file.error());
  auto bytes = (*file)->bytes();
  return parseBlockList({reinterpret_cast<const char *>(bytes.data()), bytes.size()},
                        path);
}

//===-- Which blocks ------------------------------------------------------===//

std::vector<uint64_t> partita::allBlocks(uint64_t fileBytes) {
  std::vector<uint64_t> all(BlockList{fileBytes, {}}.numBlocks());
  for (uint64_t i = 0; i < all.size(); ++i)
    all[i] = i;
  return all;
}

std::vector<uint64_t> partita::sampledBlocks(uint64_t fileBytes) {
  constexpr size_t sampled = 64;
  uint64_t count = BlockList{fileBytes, {}}.numBlocks();
  if (count <= sampled)
    return allBlocks(fileBytes);
  std::set<uint64_t> chosen = {0, count / 2, count - 1};
  for (uint64_t draw = 0; chosen.size() < sampled; ++draw) {
    uint64_t seed[] = {fileBytes, draw};
    chosen.insert(hashOf(std::as_bytes(std::span(seed))).low % count);
  }
  return {chosen.begin(), chosen.end()};
}

Expected<BlockList> partita::hashBlocks(const InputFile &file,
                                        const std::vector<uint64_t> &indices) {
  BlockList list{file.size(), {}};
  const bool isSample = indices.size() < list.numBlocks();
  file.expectJumps(isSample);
  std::vector<std::byte> bytes;
  for (uint64_t index : indices) {
    bytes.resize(list.bytesOf(index));
    if (auto ok = file.read(index * BlockList::blockBytes, bytes); !ok)
      return tl::unexpected(ok.error());
    list.blocks.push_back({index, hashOf(bytes)});
  }
  file.expectJumps(false);
  return list;
}

void BlockHasher::add(std::span<const std::byte> bytes) {
  list.fileBytes += bytes.size();
  while (!bytes.empty()) {
    size_t count = std::min<uint64_t>(bytes.size(), BlockList::blockBytes - inBlock);
    hasher.add(bytes.first(count));
    inBlock += count;
    bytes = bytes.subspan(count);
    if (inBlock < BlockList::blockBytes)
      continue;
    list.blocks.push_back({list.blocks.size(), hasher.hash()});
    hasher.reset();
    inBlock = 0;
  }
}

BlockList BlockHasher::finish() {
  if (inBlock != 0)
    list.blocks.push_back({list.blocks.size(), hasher.hash()});
  hasher.reset();
  inBlock = 0;
  return std::exchange(list, {});
}

//===-- Checking ----------------------------------------------------------===//

BlockCheck::BlockCheck(BlockList list, std::string path, std::string hint)
    : blocks(std::move(list)), path(std::move(path)), hint(std::move(hint)),
      taken(std::make_unique<std::atomic<bool>[]>(blocks.blocks.size())) {}

const BlockList::Block *BlockCheck::take(uint64_t index) {
  const BlockList::Block *block = blocks.find(index);
  if (!block)
    return nullptr;
  std::atomic<bool> &mine = taken[static_cast<size_t>(block - blocks.blocks.data())];
  // Most readers come later than the first: they only look.
  return mine.load(std::memory_order_relaxed) || mine.exchange(true) ? nullptr : block;
}

Expected<void> BlockCheck::compare(const BlockList::Block &block, const Hash128 &has) {
  uint64_t bytes = blocks.bytesOf(block.index);
  bytesDone += bytes;
  if (has == block.hash)
    return {};
  taken[static_cast<size_t>(&block - blocks.blocks.data())] = false;
  uint64_t begin = block.index * BlockList::blockBytes;
  return makeError("'" + path + "' has other bytes from " + std::to_string(begin) +
                   " to " + std::to_string(begin + bytes) +
                   (hint.empty() ? " than its list of blocks says"
                                 : " than the bundle was compiled with" + hint));
}

void BlockCheck::spent(double seconds) {
  nanoseconds += static_cast<uint64_t>(seconds * 1e9);
}
