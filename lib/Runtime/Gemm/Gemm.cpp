//===- Gemm.cpp - Products of f32 by our own kernels ----------------------===//
//
// Loops around the tiles, from outer to inner: a matrix of the batch; a block of its
// rows; a slab of the summands whose left operand fits the second-level cache and is
// packed; a panel of columns; a block of summands, whose part of the panel stays in the
// first-level cache; the tiles of the block's rows. So a panel of a weight is read from
// memory once per block of rows, and the result's panel stays in cache while it is summed
// up.
//
// What an element is summed from, and in which order, depends on the shape alone: not on
// the number of threads.
//
//===----------------------------------------------------------------------===//
#include "partita/Runtime/Gemm.h"

#include "Blocks.h"
#include "partita/Runtime/Team.h"

#include <cstring>

using namespace partita;
using namespace partita::gemm;
using engine::Call;

const Kernels *gemm::kernels() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return &avx2Kernels;
#endif
  return nullptr;
}

bool gemm::isSupported() { return kernels() != nullptr; }

namespace {

/// Panels of a computed operand that are packed together: their rows are cache lines side
/// by side.
constexpr int64_t packedTogether = 4;
constexpr size_t mostPosts = 32; // the reader's limit

/// What the bytes of a packed weight depend on. Empty stands for none.
engine::WeightForm formOf(const task::MatMul &p) {
  std::string stored = "f32";
  for (int64_t number : {p.k, p.n, p.b_row, p.b_col})
    stored += " " + std::to_string(number);
  return {stored, "panels of " + std::to_string(panelColumns)};
}

/// A post-op with the strides of its operand in every dim of the result.
struct Post {
  task::PostOp op;
  size_t operand = 0;         ///< among the call's
  std::vector<int64_t> batch; ///< strides
  int64_t row = 0, column = 0;
};

class PackedMatMul : public Call {
public:
  PackedMatMul(const task::MatMul &params, std::optional<Blocks> packedBlocks);
  Expected<void> pack(const void *raw, void *packed) const override;
  Expected<std::unique_ptr<Weight>> describe(void *packed) const override;
  Expected<std::unique_ptr<Frame>> frame() const override {
    return std::make_unique<Frame>();
  }
  bool run(Frame &, std::span<void *const> operands,
           const Weight *weight) const noexcept override;
  std::string implementation() const override { return "panels:avx2"; }

private:
  /// One thread's part: its addresses, and its scratch.
  struct Part {
    std::span<void *const> operands;
    const float *packed;
    float *left, *right;
  };
  /// A block of rows of one matrix, for some of its panels.
  struct Block {
    const Part &part;
    Matrix a, b;
    float *c;
    Span tiles, panels;
    Span rows;
    const PostStep *posts;
  };
  /// Panels that are worked on together: packed together, or passed over by one tile.
  struct Group {
    int64_t panel, count;
    bool isWide;
  };
  /// A part of them as tiles read it; `column` is the step from a panel to the next.
  struct Right {
    Matrix panels;
    int64_t ahead = 0; ///< where a weight goes on, if it does; elements
    Lines next = {};   ///< what memory is asked for between tiles
  };
  void addPost(const task::PostOp &op, size_t operand, int64_t mask);
  void setPosts(const Part &part, int64_t matrix, PostStep *steps) const;
  void units(const Part &part, int64_t begin, int64_t end) const;
  void block(const Block &block) const;
  void packLeft(const Block &block, Span depths) const;
  Group groupAt(const Block &block, int64_t panel) const;
  /// Of a panel of the packed weight, its part from a summand on; elements.
  int64_t placeOf(int64_t panel, int64_t summand) const {
    int64_t perBlock = blocks.columns / panelColumns;
    return panel / perBlock * blocks.step + panel % perBlock * panelColumns +
           summand * blocks.columns;
  }
  Lines sourceBehind(const Block &block, const Group &group, Span depths,
                     int64_t q) const;
  Right rightOf(const Block &block, const Group &group, Span depths, int64_t q) const;
  void tiles(const Block &block, const float *left, const Group &group,
             const Right &right, int64_t q) const;
  void finish(const Block &block, Span rows, int64_t column, int64_t columns) const;

  task::MatMul p;
  Geometry sizes;
  Blocks blocks; ///< of the packed weight: our own are of one panel
  std::vector<Post> posts;
  const Kernels &kernel;
  int64_t unitCount = 1;
  int parts = 1;
  bool direct; ///< a computed right operand is read where it lies
};

struct PanelWeight : Call::Weight {
  const float *at;
  explicit PanelWeight(const void *at) : at(static_cast<const float *>(at)) {}
};

} // namespace

PackedMatMul::PackedMatMul(const task::MatMul &params, std::optional<Blocks> packedBlocks)
    : p(params), sizes(p.m, p.n, p.k),
      blocks(packedBlocks.value_or(Blocks{panelColumns, panelColumns * p.k})),
      kernel(*kernels()) {
  size_t rowDim = p.batch.size(), columnDim = rowDim + 1;
  // One value per column is where the sums begin, not a post-op.
  if (p.bias_mask & 2)
    addPost({PARTITA_POST_BINARY_ADD}, task::MatMulBias,
            int64_t(p.bias_mask & 1) << columnDim | int64_t(1) << rowDim);
  size_t next = task::MatMulPost;
  for (const task::PostOp &op : p.post)
    addPost(op, task::isBinary(op.kind) ? next++ : 0, op.mask);
  direct = !p.b_packed && p.b_col == 1 && sizes.tiles <= 2;
  if (p.b_packed && !packedBlocks) {
    memory.packed = static_cast<uint64_t>(4 * sizes.panels * panelColumns * p.k);
    weightForm = formOf(p);
  } else if (!p.b_packed) {
    sizes.right = packedTogether * panelColumns * tileDepth;
  }
  unitCount = sizes.rowBlocks * sizes.panels;
  for (const task::BatchDim &d : p.batch)
    unitCount *= d.size;
  constexpr double worth =
      1 << 17; // multiplications that take longer than waking a thread
  double work = double(unitCount) * double(p.m) / double(sizes.rowBlocks) * panelColumns;
  double most = std::clamp(work * double(p.k) / worth, 1.0, double(unitCount));
  parts = static_cast<int>(std::min(double(runtime::teamSize()), most));
  memory.scratch = static_cast<uint64_t>(4 * parts * (sizes.left + sizes.right));
}

/// Strides of the operand, which is dense over the dims in the mask.
void PackedMatMul::addPost(const task::PostOp &op, size_t operand, int64_t mask) {
  Post post{op, operand, std::vector<int64_t>(p.batch.size())};
  int64_t stride = 1;
  auto place = [&](size_t dim, int64_t size, int64_t &at) {
    if (!(mask >> dim & 1))
      return;
    at = stride;
    stride *= size;
  };
  place(p.batch.size() + 1, p.n, post.column);
  place(p.batch.size(), p.m, post.row);
  for (size_t d = p.batch.size(); d-- > 0;)
    place(d, p.batch[d].size, post.batch[d]);
  posts.push_back(std::move(post));
}

Expected<void> PackedMatMul::pack(const void *raw, void *packed) const {
  auto *from = static_cast<const float *>(raw);
  auto *to = static_cast<float *>(packed);
  runtime::runRanges(sizes.panels, panelColumns * p.k, [&](int64_t begin, int64_t end) {
    int64_t column = begin * panelColumns;
    packPanels(kernel, {from + column * p.b_col, p.b_row, p.b_col}, p.k,
               std::min(end * panelColumns, p.n) - column, to + column * p.k);
  });
  return {};
}

Expected<std::unique_ptr<Call::Weight>> PackedMatMul::describe(void *packed) const {
  return std::make_unique<PanelWeight>(packed);
}

bool PackedMatMul::run(Frame &, std::span<void *const> operands,
                       const Weight *weight) const noexcept {
  auto *scratch = static_cast<float *>(operands[task::MatMulScratch]);
  auto *packed = weight ? static_cast<const PanelWeight *>(weight)->at : nullptr;
  runtime::runParts(parts, [&](int part) {
    float *own = scratch + part * (sizes.left + sizes.right);
    units({operands, packed, own, own + sizes.left},
          runtime::partBegin(unitCount, part, parts),
          runtime::partBegin(unitCount, part + 1, parts));
  });
  return true;
}

/// Where the post-ops' operands of a matrix begin.
void PackedMatMul::setPosts(const Part &part, int64_t matrix, PostStep *steps) const {
  for (size_t i = 0; i < posts.size(); ++i) {
    const Post &post = posts[i];
    const float *y = nullptr;
    if (post.operand) {
      y = static_cast<const float *>(part.operands[post.operand]);
      int64_t rest = matrix;
      for (size_t d = p.batch.size(); d-- > 0; rest /= p.batch[d].size)
        y += rest % p.batch[d].size * post.batch[d];
    }
    steps[i] = {post.op.kind, post.op.alpha, post.op.beta, y, post.row, post.column};
  }
}

/// A unit is a panel of a block of rows of a matrix, counted through in that order.
void PackedMatMul::units(const Part &part, int64_t begin, int64_t end) const {
  PostStep steps[mostPosts + 1];
  while (begin < end) {
    int64_t block = begin / sizes.panels, first = begin % sizes.panels;
    Span panels{first, std::min(sizes.panels, first + end - begin)};
    begin += panels.size();
    int64_t matrix = block / sizes.rowBlocks, fromA = 0, fromB = 0, fromC = 0;
    setPosts(part, matrix, steps);
    for (size_t d = p.batch.size(); d-- > 0; matrix /= p.batch[d].size) {
      int64_t i = matrix % p.batch[d].size;
      fromA += i * p.batch[d].a;
      fromB += i * p.batch[d].b;
      fromC += i * p.batch[d].c;
    }
    Span tiles = blockOf(sizes.tiles, block % sizes.rowBlocks, sizes.rowBlocks);
    this->block({part,
                 {static_cast<const float *>(part.operands[task::MatMulA]) + fromA,
                  p.a_row, p.a_col},
                 {static_cast<const float *>(part.operands[task::MatMulB]) + fromB,
                  p.b_row, p.b_col},
                 static_cast<float *>(part.operands[task::MatMulC]) + fromC,
                 tiles,
                 panels,
                 {sizes.rowOf(tiles.begin), sizes.rowOf(tiles.end)},
                 steps});
  }
}

void PackedMatMul::block(const Block &block) const {
  for (int64_t s = 0; s < sizes.slabs; ++s) {
    Span depths = blockOf(sizes.depthBlocks, s, sizes.slabs);
    packLeft(block, depths);
    for (int64_t panel = block.panels.begin; panel < block.panels.end;) {
      Group group = groupAt(block, panel);
      const float *left = block.part.left;
      for (int64_t q = depths.begin; q < depths.end; ++q) {
        tiles(block, left, group, rightOf(block, group, depths, q), q);
        left += block.rows.size() * leftStride;
      }
      panel += group.count;
    }
  }
}

/// The block's rows for some blocks of summands: of each, rows leftStride apart.
void PackedMatMul::packLeft(const Block &block, Span depths) const {
  int64_t rows = block.rows.size();
  float *to = block.part.left;
  for (int64_t q = depths.begin; q < depths.end; ++q, to += rows * leftStride) {
    Span summands = sizes.summandsOf(q);
    const float *from =
        block.a.at + block.rows.begin * p.a_row + summands.begin * p.a_col;
    if (p.a_col != 1 && p.a_row == 1) {
      kernel.transpose(summands.size(), rows, from, p.a_col, to, leftStride);
      continue;
    }
    for (int64_t i = 0; i < rows; ++i, from += p.a_row)
      if (p.a_col == 1)
        std::memcpy(to + i * leftStride, from, static_cast<size_t>(4 * summands.size()));
      else
        for (int64_t k = 0; k < summands.size(); ++k)
          to[i * leftStride + k] = from[k * p.a_col];
  }
}

PackedMatMul::Group PackedMatMul::groupAt(const Block &block, int64_t panel) const {
  int64_t left = block.panels.end - panel;
  if (!p.b_packed && !direct)
    return {panel, std::min(left, packedTogether), false};
  // A single tile of few rows passes over several panels, unless the last of them has to
  // be packed apart.
  int64_t wide = block.tiles.size() == 1 ? panelsAt[block.rows.size() - 1] : 1;
  bool isWhole = p.b_packed || (panel + wide) * panelColumns <= p.n;
  int64_t perBlock = p.b_packed ? blocks.columns / panelColumns : 1;
  bool isEven = perBlock == 1 || panel % perBlock + wide <= perBlock;
  bool isWide = wide > 1 && wide <= left && isWhole && isEven;
  return {panel, isWide ? wide : 1, isWide};
}

PackedMatMul::Right PackedMatMul::rightOf(const Block &block, const Group &group,
                                          Span depths, int64_t q) const {
  int64_t column = group.panel * panelColumns;
  Span summands = sizes.summandsOf(q);
  if (p.b_packed) {
    // Behind the slab's last summands comes the next panel.
    int64_t at = placeOf(group.panel, summands.begin);
    int64_t next = q + 1 < depths.end ? placeOf(group.panel, summands.end)
                                      : placeOf(group.panel + group.count,
                                                sizes.summandsOf(depths.begin).begin);
    int64_t lines = summands.size() * group.count;
    bool isOne = blocks.columns == panelColumns;
    return {
        {block.part.packed + at, blocks.columns, isOne ? blocks.step : panelColumns},
        next - at,
        {block.part.packed + next, isOne ? lines : 1, isOne ? 0 : blocks.columns, lines}};
  }
  const float *from = block.b.at + summands.begin * p.b_row + column * p.b_col;
  if (direct && column + group.count * panelColumns <= p.n)
    return {{from, p.b_row, panelColumns}};
  int64_t step = panelColumns * summands.size();
  packPanels(kernel, {from, p.b_row, p.b_col}, summands.size(),
             std::min(group.count * panelColumns, p.n - column), block.part.right);
  return {
      {block.part.right, panelColumns, step}, 0, sourceBehind(block, group, depths, q)};
}

/// What is packed after this part of a group of panels.
Lines PackedMatMul::sourceBehind(const Block &block, const Group &group, Span depths,
                                 int64_t q) const {
  bool goesOn = q + 1 < depths.end;
  int64_t panel = goesOn ? group.panel : group.panel + group.count;
  int64_t columns = std::min(group.count * panelColumns, p.n - panel * panelColumns);
  if (panel >= block.panels.end || columns <= 0)
    return {};
  Span summands = sizes.summandsOf(goesOn ? q + 1 : depths.begin);
  const float *at =
      block.b.at + summands.begin * p.b_row + panel * panelColumns * p.b_col;
  if (p.b_col == 1)
    return {at, ceilDiv(columns, 16), p.b_row, ceilDiv(columns, 16) * summands.size()};
  int64_t inRun = ceilDiv(summands.size(), 16);
  return {at, inRun, p.b_col, p.b_row == 1 ? inRun * columns : 0};
}

/// The tiles of the block's rows for block `q` of the summands.
void PackedMatMul::tiles(const Block &block, const float *left, const Group &group,
                         const Right &right, int64_t q) const {
  const int64_t depth = sizes.summandsOf(q).size();
  const int64_t many = block.tiles.size(), wide = group.isWide ? group.count : 1;
  Lines next = right.next;
  const int64_t share = ceilDiv(next.count, many * (group.count / wide));
  const bool isLast = q + 1 == sizes.depthBlocks && !posts.empty();
  const auto *bias =
      p.bias_mask == 1 ? static_cast<const float *>(block.part.operands[task::MatMulBias])
                       : nullptr;
  for (int64_t panel = 0; panel < group.count; panel += wide) {
    const int64_t column = (group.panel + panel) * panelColumns;
    Tile tile{depth,
              left,
              leftStride,
              right.panels.at + panel * right.panels.column,
              right.panels.row,
              right.panels.column,
              block.c + block.rows.begin * p.c_row + column,
              p.c_row,
              std::min(wide * panelColumns, p.n - column),
              q > 0,
              bias ? bias + column : nullptr,
              nullptr,
              0};
    tile.next = tile.b + right.ahead;
    tile.nextStep =
        right.ahead && many < manyTiles ? std::max<int64_t>(64 * wide / many, 1) : 0;
    int64_t row = block.rows.begin;
    for (int64_t u = block.tiles.begin; u < block.tiles.end; ++u) {
      const int64_t rows = sizes.rowsOf(u);
      if (tile.nextStep == 0)
        next.ask(share);
      kernel.tile[rows - 1][group.isWide](tile);
      if (isLast)
        finish(block, {row, row + rows}, column, tile.columns);
      tile.a += rows * leftStride;
      tile.c += rows * p.c_row;
      tile.next += tile.nextStep * depth / 4;
      row += rows;
    }
  }
}

/// The post-ops on a tile whose sums are complete.
void PackedMatMul::finish(const Block &block, Span rows, int64_t column,
                          int64_t columns) const {
  float *c = block.c + rows.begin * p.c_row + column;
  for (size_t i = 0; i < posts.size(); ++i)
    for (int64_t from = 0; from < columns; from += panelColumns) {
      PostStep step = block.posts[i];
      if (step.y)
        step.y += rows.begin * step.yRow + (column + from) * step.yColumn;
      kernel.post(step, rows.size(), std::min(panelColumns, columns - from), c + from,
                  p.c_row);
    }
}

/// Whether no two elements of a rows × columns matrix share a place.
static bool isApart(int64_t rows, int64_t row, int64_t columns, int64_t column) {
  if (rows == 1 || columns == 1)
    return (rows == 1 || row >= 1) && (columns == 1 || column >= 1);
  return (column >= 1 && row / columns >= column) || (row >= 1 && column / rows >= row);
}

/// A table may say what no program has: the numbers of units must be numbers.
static bool isCountable(const task::MatMul &p) {
  double units = double(ceilDiv(p.m, tileRows)) * double(ceilDiv(p.n, panelColumns));
  for (const task::BatchDim &d : p.batch)
    units *= double(d.size);
  return units < 1e15;
}

std::unique_ptr<Call> gemm::matMul(const task::MatMul &p, std::optional<Blocks> blocks) {
  // Of a weight whose elements are apart, the packed bytes are bounded by the stored
  // ones.
  if (!kernels() || static_cast<DType>(p.dtype) != DType::F32 ||
      p.post.size() > mostPosts || !isCountable(p) ||
      (p.b_packed && !isApart(p.k, p.b_row, p.n, p.b_col)))
    return nullptr;
  for (const task::BatchDim &d : p.batch)
    if (p.b_packed && d.b != 0)
      return nullptr;
  return std::make_unique<PackedMatMul>(p, blocks);
}

bool gemm::isWorth(const task::MatMul &p) {
  // Panels of which most is padding. One column that is dense is a row to oneDNN.
  bool isRow = p.n == 1 && p.m > 1 && p.c_row == 1;
  if ((p.n > 1 || isRow) && p.n < panelColumns - 3)
    return false;
  if (p.b_packed)
    return true;
  // Of what is packed for this call alone, many rows must make use; what is small enough
  // for the caches is fast without.
  return p.n > 256 && (p.m >= 8 || (p.m > 1 && p.b_col == 1));
}
