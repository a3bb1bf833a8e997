//===- BlockList.h - Hashes of a file by blocks of 4 MiB --------*- C++ -*-===//
//
// A list that stands beside a file and says what its blocks are: all of them, or a
// sample. Bundles have such lists, for their own weights and for the model's external
// data; docs/bundle-format.md says how they look and why.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_FILES_BLOCKLIST_H
#define PARTITA_BASE_FILES_BLOCKLIST_H

#include "partita/Base/Error.h"
#include "partita/Base/Files/Hash.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

class InputFile;

struct BlockList {
  /// Bytes of a block; the last one of a file may be shorter.
  static constexpr uint64_t blockBytes = uint64_t(4) << 20;
  struct Block {
    uint64_t index = 0; ///< its bytes begin at index * blockBytes
    Hash128 hash;
  };

  uint64_t fileBytes = 0;
  std::vector<Block> blocks; ///< by ascending index

  uint64_t numBlocks() const { return (fileBytes + blockBytes - 1) / blockBytes; }
  /// Whether every block of the file is listed.
  bool isWhole() const { return blocks.size() == numBlocks(); }
  /// The listed block, or null.
  const Block *find(uint64_t index) const;
  /// Bytes that a block of the file has.
  uint64_t bytesOf(uint64_t index) const;
  /// A line about the file, then a line per block.
  std::string text() const;
};

/// An error names `where` and the line.
Expected<BlockList> parseBlockList(std::string_view text, const std::string &where);
Expected<BlockList> readBlockList(const std::string &path);

/// All blocks of a file of so many bytes, by index.
std::vector<uint64_t> allBlocks(uint64_t fileBytes);
/// The first, the middle and the last block of such a file and 61 more, which its size
/// alone determines; all of them if there are no more.
std::vector<uint64_t> sampledBlocks(uint64_t fileBytes);
/// Reads these blocks, whose indices ascend, and nothing else of the file.
Expected<BlockList> hashBlocks(const InputFile &file,
                               const std::vector<uint64_t> &indices);

/// The list of a file while its bytes are written in order.
class BlockHasher {
public:
  void add(std::span<const std::byte> bytes);
  /// List of all that was added.
  BlockList finish();

private:
  Hasher hasher;
  uint64_t inBlock = 0;
  BlockList list;
};

/// Record of the blocks of an open file that are seen to be as its list says. Several
/// threads may use one at once.
class BlockCheck {
public:
  /// `path`: for messages. `hint`: what the user of a bundle can do, behind the sentence;
  /// empty: the file is of no bundle.
  BlockCheck(BlockList list, std::string path, std::string hint);

  const BlockList &list() const { return blocks; }
  /// The listed block, for the first who asks; null for those after, who need not wait:
  /// the first reports what is wrong.
  const BlockList::Block *take(uint64_t index);
  /// Compares the hash of the bytes of a block that was taken.
  Expected<void> compare(const BlockList::Block &block, const Hash128 &has);

  /// Adds to the time that checking took, reading included.
  void spent(double seconds);
  uint64_t checkedBytes() const { return bytesDone.load(); }
  double seconds() const { return static_cast<double>(nanoseconds.load()) * 1e-9; }

private:
  BlockList blocks;
  std::string path, hint;
  std::unique_ptr<std::atomic<bool>[]> taken; ///< by place in the list
  std::atomic<uint64_t> bytesDone{0}, nanoseconds{0};
};

} // namespace partita

#endif // PARTITA_BASE_FILES_BLOCKLIST_H
