//===- EngineMemory.cpp - What oneDNN allocates while it runs -------------===//
#include "EngineMemory.h"

#include "KeptBlocks.h"

#include <oneapi/dnnl/dnnl.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <new>
#include <span>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

using namespace partita::onednn;

//===----------------------------------------------------------------------===//
// What stands in the slots
//===----------------------------------------------------------------------===//

/// What the slots held before, or what else the names stand for.
namespace original {
static void *(*allocate)(size_t);
static void *(*allocateZeros)(size_t, size_t);
static void *(*reallocate)(void *, size_t);
static int (*allocateAligned)(void **, size_t, size_t);
static void (*release)(void *);
static void *(*create)(size_t);
static void *(*createQuietly)(size_t, const std::nothrow_t &);
static void (*destroy)(void *);
} // namespace original

/// Of blocks without a demand of their own.
static constexpr size_t usualAlignment = alignof(std::max_align_t);

static void *ordinary(void *block) {
  kept::forget(block);
  return block;
}

static void *takeMalloc(size_t bytes) {
  void *block = kept::take(kept::Malloc, usualAlignment, bytes);
  return block ? block : ordinary(original::allocate(bytes));
}
static void *takeZeros(size_t count, size_t bytes) {
  return ordinary(original::allocateZeros(count, bytes));
}
static void *resize(void *block, size_t bytes) {
  kept::forget(block);
  return ordinary(original::reallocate(block, bytes));
}
static int takeAligned(void **out, size_t alignment, size_t bytes) {
  bool valid = alignment % sizeof(void *) == 0 && (alignment & (alignment - 1)) == 0;
  if (void *block = valid ? kept::take(kept::Malloc, alignment, bytes) : nullptr) {
    *out = block;
    return 0;
  }
  int code = original::allocateAligned(out, alignment, bytes);
  if (code == 0)
    kept::forget(*out);
  return code;
}
static void giveMalloc(void *block) {
  if (!kept::give(block))
    original::release(block);
}
static void *takeNew(size_t bytes) {
  void *block = kept::take(kept::New, usualAlignment, bytes);
  return block ? block : ordinary(original::create(bytes));
}
static void *takeNewQuietly(size_t bytes, const std::nothrow_t &tag) {
  void *block = kept::take(kept::New, usualAlignment, bytes);
  return block ? block : ordinary(original::createQuietly(bytes, tag));
}
static void giveNew(void *block) {
  if (!kept::give(block))
    original::destroy(block);
}

static constexpr kept::Source mallocSource = {
    [](size_t alignment, size_t bytes) -> void * {
      if (alignment == usualAlignment)
        return original::allocate(bytes);
      void *block = nullptr;
      return original::allocateAligned(&block, alignment, bytes) == 0 ? block : nullptr;
    },
    [](void *block) { original::release(block); }};

static constexpr kept::Source newSource = {
    [](size_t, size_t bytes) { return original::create(bytes); },
    [](void *block) { original::destroy(block); }};

namespace {

struct Redirect {
  std::string_view name;
  void **original;
  void *replacement;
};

template <typename Function>
Redirect redirect(std::string_view name, Function *&original, Function *replacement) {
  return {name, reinterpret_cast<void **>(&original),
          reinterpret_cast<void *>(replacement)};
}

//===----------------------------------------------------------------------===//
// Slots of a shared object
//===----------------------------------------------------------------------===//

/// The object that holds an address, as the dynamic linker loaded it.
class LoadedObject {
public:
  /// False: no object holds it.
  bool open(const void *address) {
    inside = reinterpret_cast<uintptr_t>(address);
    return ::dl_iterate_phdr(
               [](dl_phdr_info *info, size_t, void *self) {
                 return static_cast<int>(static_cast<LoadedObject *>(self)->take(*info));
               },
               this) != 0;
  }

  bool holds(uintptr_t address) const {
    for (const ElfW(Phdr) &segment : std::span(headers, numHeaders))
      if (segment.p_type == PT_LOAD && address - base - segment.p_vaddr < segment.p_memsz)
        return true;
    return false;
  }

  /// Calls fn(name, slot) for every slot that the linker filled with the address of a
  /// named function.
  template <typename Fn> void forEachImport(Fn fn) const {
    forEachImport(table(DT_JMPREL), value(DT_PLTRELSZ), fn);
    forEachImport(table(DT_RELA), value(DT_RELASZ), fn);
  }

  /// Writes a slot, which the linker may have protected. One store, as others may call
  /// through it meanwhile.
  bool write(uintptr_t *slot, void *target) const {
    auto place = reinterpret_cast<uintptr_t>(slot);
    size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    void *start = reinterpret_cast<void *>(place / page * page);
    bool isProtected = place - base - relro.p_vaddr < relro.p_memsz;
    if (isProtected && ::mprotect(start, page, PROT_READ | PROT_WRITE) != 0)
      return false;
    __atomic_store_n(slot, reinterpret_cast<uintptr_t>(target), __ATOMIC_RELEASE);
    if (isProtected)
      ::mprotect(start, page, PROT_READ);
    return true;
  }

private:
  bool take(const dl_phdr_info &info) {
    base = info.dlpi_addr;
    headers = info.dlpi_phdr;
    numHeaders = info.dlpi_phnum;
    if (!holds(inside))
      return false;
    for (const ElfW(Phdr) &segment : std::span(headers, numHeaders)) {
      if (segment.p_type == PT_DYNAMIC)
        dynamic = reinterpret_cast<const ElfW(Dyn) *>(base + segment.p_vaddr);
      if (segment.p_type == PT_GNU_RELRO)
        relro = segment;
    }
    return dynamic != nullptr;
  }

  uintptr_t value(ElfW(Sxword) tag) const {
    for (const ElfW(Dyn) *entry = dynamic; entry->d_tag != DT_NULL; ++entry)
      if (entry->d_tag == tag)
        return entry->d_un.d_val;
    return 0;
  }
  /// Some linkers leave these relative to the object's place.
  uintptr_t table(ElfW(Sxword) tag) const {
    uintptr_t at = value(tag);
    return at != 0 && !holds(at) ? base + at : at;
  }

  template <typename Fn>
  void forEachImport(uintptr_t relocations, size_t bytes, Fn fn) const {
#if defined(__x86_64__)
    constexpr ElfW(Xword) jump = R_X86_64_JUMP_SLOT, data = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
    constexpr ElfW(Xword) jump = R_AARCH64_JUMP_SLOT, data = R_AARCH64_GLOB_DAT;
#else
    return;
#endif
    auto *symbols = reinterpret_cast<const ElfW(Sym) *>(table(DT_SYMTAB));
    auto *strings = reinterpret_cast<const char *>(table(DT_STRTAB));
    auto *first = reinterpret_cast<const ElfW(Rela) *>(relocations);
    for (const ElfW(Rela) &r : std::span(first, bytes / sizeof(*first))) {
      auto type = ELF64_R_TYPE(r.r_info);
      if (type == jump || type == data)
        fn(std::string_view(strings + symbols[ELF64_R_SYM(r.r_info)].st_name),
           reinterpret_cast<uintptr_t *>(base + r.r_offset));
    }
  }

  uintptr_t inside = 0, base = 0;
  const ElfW(Phdr) *headers = nullptr;
  size_t numHeaders = 0;
  const ElfW(Dyn) *dynamic = nullptr;
  ElfW(Phdr) relro {};
};

} // namespace

/// Finds what every name stands for: what its slot holds, unless the linker has not
/// looked it up yet. Blocks can be freed only by what belongs to what made them, so all
/// names must be found.
static bool findOriginals(const LoadedObject &object, std::span<const Redirect> list) {
  object.forEachImport([&](std::string_view name, uintptr_t *slot) {
    for (const Redirect &r : list)
      if (r.name == name && !object.holds(*slot))
        *r.original = reinterpret_cast<void *>(*slot);
  });
  for (const Redirect &r : list) {
    if (!*r.original)
      *r.original = ::dlsym(RTLD_DEFAULT, r.name.data());
    if (!*r.original)
      return false;
  }
  return true;
}

static bool redirectAll() {
  using namespace original;
  const Redirect list[] = {
      redirect("malloc", allocate, takeMalloc),
      redirect("calloc", allocateZeros, takeZeros),
      redirect("realloc", reallocate, resize),
      redirect("posix_memalign", allocateAligned, takeAligned),
      redirect("free", release, giveMalloc),
      redirect("_Znwm", create, takeNew),
      redirect("_ZnwmRKSt9nothrow_t", createQuietly, takeNewQuietly),
      redirect("_ZdlPv", destroy, giveNew),
  };
  LoadedObject object;
  // Data of oneDNN, as the address of a function may be that of an entry in this
  // object's own linkage table.
  if (!object.open(::dnnl_version()) ||
      object.holds(reinterpret_cast<uintptr_t>(&redirectAll)) ||
      !findOriginals(object, list))
    return false;
  kept::setSource(kept::Malloc, mallocSource);
  kept::setSource(kept::New, newSource);
  // The slots must not outlive what they point to.
  Dl_info self;
  if (::dladdr(reinterpret_cast<void *>(&redirectAll), &self) && self.dli_fname)
    ::dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  object.forEachImport([&](std::string_view name, uintptr_t *slot) {
    for (const Redirect &r : list)
      if (r.name == name)
        object.write(slot, r.replacement);
  });
  return true;
}

void partita::onednn::keepEngineMemory() {
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||               \
    __has_feature(memory_sanitizer)
  // Its allocator must see every block to find errors.
  return;
#endif
  static bool done = redirectAll();
  (void)done;
}
