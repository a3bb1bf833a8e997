//===- DistAttrs.cpp - Attributes: uniquing, text, checks -----------------===//
#include "dialects/Dist/Dist.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace partita;
using namespace partita::dist;

//===-- Hashes of lib/ structs, for uniquing ------------------------------===//

namespace partita {
static llvm::hash_code hash_value(const Mesh &mesh) {
  llvm::hash_code code(0);
  for (const Mesh::Axis &axis : mesh.axes())
    code = llvm::hash_combine(code, axis.name, axis.size);
  return code;
}
static llvm::hash_code hash_value(const AxisRef &axis) {
  return llvm::hash_combine(axis.axis, axis.pre, axis.size);
}
template <typename T> static llvm::hash_code hashAll(const std::vector<T> &list) {
  return llvm::hash_combine_range(list.begin(), list.end());
}
static llvm::hash_code hash_value(const DimFactor &factor) {
  return llvm::hash_combine(factor.size, factor.padded, hashAll(factor.axes),
                            hashAll(factor.blocks));
}
static llvm::hash_code hash_value(const DimLayout &dim) { return hashAll(dim.factors); }
static llvm::hash_code hash_value(const PartialAxes &partial) {
  return llvm::hash_combine(partial.kind, hashAll(partial.axes));
}
static llvm::hash_code hash_value(const Layout &layout) {
  return llvm::hash_combine(hashAll(layout.dims), hashAll(layout.partial));
}
static llvm::hash_code hash_value(const NamedStrategy &strategy) {
  llvm::hash_code code(0);
  for (const NamedStrategy::Loop &loop : strategy.loops)
    code = llvm::hash_combine(code, loop.name, loop.split);
  for (const NamedStrategy::Pass &pass : strategy.passes)
    code = llvm::hash_combine(code, pass.set.kind, hashAll(pass.set.operands),
                              hashAll(pass.axes));
  return code;
}
static llvm::hash_code hash_value(const ShardingRule &rule) {
  llvm::hash_code code(0);
  for (const Factor &factor : rule.factors)
    code = llvm::hash_combine(code, factor.size, factor.kind(), factor.name);
  for (const auto *tensors : {&rule.operands, &rule.results})
    for (const TensorFactors &tensor : *tensors)
      for (const auto &dim : tensor)
        code = llvm::hash_combine(code, hashAll(dim));
  return code;
}
static llvm::hash_code hash_value(const HaloWindow &window) {
  return llvm::hash_combine(window.dim, window.stride, window.kernelExtent, window.low);
}
static llvm::hash_code hash_value(const std::vector<HaloWindow> &windows) {
  return hashAll(windows);
}
static llvm::hash_code hash_value(const ExchangeRun &run) {
  return llvm::hash_combine(run.before, run.after, run.length);
}
static llvm::hash_code hash_value(const Piece &piece) {
  return llvm::hash_combine(piece.from, piece.to, hashAll(piece.runs));
}
static llvm::hash_code hash_value(const std::vector<Piece> &list) {
  return hashAll(list);
}
} // namespace partita

#define GET_ATTRDEF_CLASSES
#include "dialects/Dist/DistAttrs.cpp.inc"

void DistDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Dist/DistAttrs.cpp.inc"
      >();
}

//===-- Text --------------------------------------------------------------===//

/// Moves the parser past one token of the grammars of lib/; false at any other.
static bool skipToken(AsmParser &parser) {
  StringRef word;
  int64_t number = 0;
  if (succeeded(parser.parseOptionalKeyword(&word)))
    return true;
  if (OptionalParseResult read = parser.parseOptionalInteger(number); read.has_value())
    return succeeded(*read);
  return succeeded(parser.parseOptionalComma()) ||
         succeeded(parser.parseOptionalColon()) ||
         succeeded(parser.parseOptionalLBrace()) ||
         succeeded(parser.parseOptionalRBrace()) ||
         succeeded(parser.parseOptionalLSquare()) ||
         succeeded(parser.parseOptionalRSquare()) ||
         succeeded(parser.parseOptionalLParen()) ||
         succeeded(parser.parseOptionalRParen()) ||
         succeeded(parser.parseOptionalStar()) ||
         succeeded(parser.parseOptionalSlash()) ||
         succeeded(parser.parseOptionalPlus()) || succeeded(parser.parseOptionalEqual());
}

/// The text up to (and without) the next '>' or `stop`: layouts and strategies have one
/// grammar, that of lib/, and are read by its readers.
static std::string rawText(AsmParser &parser, StringRef stop = ">") {
  const char *begin = parser.getCurrentLocation().getPointer();
  size_t length = StringRef(begin).find_first_of(stop);
  if (length == StringRef::npos)
    length = 0;
  while (parser.getCurrentLocation().getPointer() < begin + length && skipToken(parser))
    continue;
  size_t read = static_cast<size_t>(parser.getCurrentLocation().getPointer() - begin);
  return StringRef(begin, std::min(read, length)).rtrim().str();
}

static MeshAttr parseMeshAndComma(AsmParser &parser) {
  MeshAttr mesh;
  if (parser.parseLess() || parser.parseAttribute(mesh) || parser.parseComma())
    return {};
  return mesh;
}

/// Hands a reader's error on as the parser's.
template <typename T>
static const T *reported(AsmParser &parser, SMLoc location, const Expected<T> &read) {
  if (read)
    return &*read;
  parser.emitError(location, read.error().message);
  return nullptr;
}

Attribute MeshAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  SMLoc location = parser.getCurrentLocation();
  auto mesh = Mesh::parse(rawText(parser));
  if (!reported(parser, location, mesh) || parser.parseGreater())
    return {};
  return MeshAttr::get(parser.getContext(), *mesh);
}

void MeshAttr::print(AsmPrinter &printer) const {
  printer << "<" << getMesh().str() << ">";
}

Attribute LayoutAttr::parse(AsmParser &parser, Type) {
  MeshAttr mesh = parseMeshAndComma(parser);
  if (!mesh)
    return {};
  SMLoc location = parser.getCurrentLocation();
  auto layout = Layout::parse(rawText(parser), mesh.getMesh());
  if (!reported(parser, location, layout) || parser.parseGreater())
    return {};
  return parser.getChecked<LayoutAttr>(location, parser.getContext(), mesh, *layout);
}

void LayoutAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printer.printAttribute(getMesh());
  printer << ", " << str() << ">";
}

LogicalResult LayoutAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                                 MeshAttr mesh, Layout layout) {
  if (auto ok = layout.verify(mesh.getMesh()); !ok)
    return emitError() << ok.error().message;
  return success();
}

LayoutAttr LayoutAttr::canonical() const {
  return LayoutAttr::get(getContext(), getMesh(), getLayout().canonicalized());
}

Attribute StrategyAttr::parse(AsmParser &parser, Type) {
  MeshAttr mesh = parseMeshAndComma(parser);
  if (!mesh)
    return {};
  SMLoc location = parser.getCurrentLocation();
  auto strategy = NamedStrategy::parse(rawText(parser), mesh.getMesh());
  if (!reported(parser, location, strategy) || parser.parseGreater())
    return {};
  return StrategyAttr::get(parser.getContext(), mesh, *strategy);
}

void StrategyAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printer.printAttribute(getMesh());
  printer << ", " << str() << ">";
}

Expected<Strategy> StrategyAttr::resolve(const ShardingRule &rule) const {
  auto strategy = getStrategy().resolve(rule);
  if (!strategy || cast<DistDialect>(getDialect()).isKnownToFit(*this, rule))
    return strategy;
  if (auto ok = verifyStrategy(devices(), rule, *strategy); !ok)
    return tl::unexpected(ok.error());
  return strategy;
}

Attribute RuleAttr::parse(AsmParser &parser, Type) {
  std::string text;
  if (parser.parseLess())
    return {};
  SMLoc location = parser.getCurrentLocation();
  if (parser.parseString(&text) || parser.parseGreater())
    return {};
  auto rule = ShardingRule::read(text);
  if (!reported(parser, location, rule))
    return {};
  return RuleAttr::get(parser.getContext(), *rule);
}

void RuleAttr::print(AsmPrinter &printer) const {
  printer << "<\"" << getRule().str() << "\">";
}

Attribute PhaseAttr::parse(AsmParser &parser, Type) {
  StringRef word;
  if (parser.parseLess())
    return {};
  SMLoc location = parser.getCurrentLocation();
  if (parser.parseKeyword(&word) || parser.parseGreater())
    return {};
  if (auto phase = phaseFromName(std::string_view(word)))
    return get(parser.getContext(), *phase);
  parser.emitError(location, "expected forward, backward, weight or update, got ")
      << word;
  return {};
}

void PhaseAttr::print(AsmPrinter &printer) const {
  printer << "<" << partita::name(getValue()) << ">";
}

Attribute RecomputeAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess() || parser.parseKeyword("before") || parser.parseKeyword("first"))
    return {};
  bool keeps = false, gathers = false;
  while (succeeded(parser.parseOptionalComma()))
    if (succeeded(parser.parseOptionalKeyword("keep"))) {
      keeps = true;
      if (parser.parseKeyword("communication"))
        return {};
    } else {
      gathers = true;
      if (parser.parseKeyword("gather") || parser.parseKeyword("again"))
        return {};
    }
  return parser.parseGreater() ? Attribute() : get(parser.getContext(), keeps, gathers);
}

void RecomputeAttr::print(AsmPrinter &printer) const {
  printer << "<before first" << (getKeepsCommunication() ? ", keep communication" : "")
          << (getGathersAgain() ? ", gather again" : "") << ">";
}

static std::optional<ReduceKind> parseKind(AsmParser &parser) {
  SMLoc location = parser.getCurrentLocation();
  StringRef word;
  if (parser.parseKeyword(&word))
    return std::nullopt;
  auto kind = reduceKindFromName(std::string_view(word));
  if (!kind)
    parser.emitError(location, "expected sum, max, min or prod, got ") << word;
  return kind;
}

Attribute KindAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  auto kind = parseKind(parser);
  if (!kind || parser.parseGreater())
    return {};
  return KindAttr::get(parser.getContext(), *kind);
}

void KindAttr::print(AsmPrinter &printer) const {
  printer << "<" << partita::name(getValue()) << ">";
}

static ParseResult parseWindow(AsmParser &parser, HaloWindow &window) {
  int64_t dim = 0;
  if (parser.parseKeyword("dim") || parser.parseInteger(dim) ||
      parser.parseKeyword("stride") || parser.parseInteger(window.stride) ||
      parser.parseKeyword("kernel_extent") || parser.parseInteger(window.kernelExtent) ||
      parser.parseKeyword("low") || parser.parseInteger(window.low))
    return failure();
  window.dim = static_cast<int32_t>(dim);
  return success();
}

Attribute WindowsAttr::parse(AsmParser &parser, Type) {
  LayoutAttr positions;
  std::vector<HaloWindow> windows;
  if (parser.parseLess() || parser.parseAttribute(positions) || parser.parseComma())
    return {};
  while (failed(parser.parseOptionalKeyword("fill")))
    if (parseWindow(parser, windows.emplace_back()) || parser.parseComma())
      return {};
  auto fill = parseKind(parser);
  if (!fill || parser.parseGreater())
    return {};
  return WindowsAttr::get(parser.getContext(), positions, windows, *fill);
}

void WindowsAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printer.printAttribute(getPositions());
  for (const HaloWindow &window : getWindows())
    printer << ", dim " << window.dim << " stride " << window.stride << " kernel_extent "
            << window.kernelExtent << " low " << window.low;
  printer << ", fill " << partita::name(getFill()) << ">";
}

Halo WindowsAttr::from(const Layout &before) const {
  return {before, getPositions().getLayout(), getWindows(), getFill()};
}

WindowsAttr WindowsAttr::of(MeshAttr mesh, const Halo &halo) {
  auto positions = LayoutAttr::get(mesh.getContext(), mesh, halo.positions);
  return WindowsAttr::get(mesh.getContext(), positions, halo.windows, halo.fill);
}

static ParseResult parsePiece(AsmParser &parser, Piece &piece) {
  auto run = [&] {
    ExchangeRun &run = piece.runs.emplace_back();
    return failure(parser.parseInteger(run.before) || parser.parseKeyword("to") ||
                   parser.parseInteger(run.after) || parser.parseKeyword("of") ||
                   parser.parseInteger(run.length));
  };
  return failure(parser.parseInteger(piece.from) || parser.parseKeyword("to") ||
                 parser.parseInteger(piece.to) ||
                 parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, run));
}

Attribute PiecesAttr::parse(AsmParser &parser, Type) {
  MeshAttr mesh;
  std::vector<Piece> list;
  if (parser.parseLess() || parser.parseAttribute(mesh))
    return {};
  while (succeeded(parser.parseOptionalComma()))
    if (parsePiece(parser, list.emplace_back()))
      return {};
  if (parser.parseGreater())
    return {};
  return PiecesAttr::get(parser.getContext(), mesh, list);
}

void PiecesAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printer.printAttribute(getMesh());
  for (const Piece &piece : getList()) {
    printer << ", " << piece.from << " to " << piece.to << " [";
    llvm::interleaveComma(piece.runs, printer, [&](const ExchangeRun &run) {
      printer << run.before << " to " << run.after << " of " << run.length;
    });
    printer << "]";
  }
  printer << ">";
}

Pieces PiecesAttr::between(ArrayRef<int64_t> before, ArrayRef<int64_t> after) const {
  return {before.vec(), after.vec(), getList()};
}
