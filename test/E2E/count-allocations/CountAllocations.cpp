//===- CountAllocations.cpp - Counts what a process allocates -------------===//
//
// Preloaded (LD_PRELOAD) into a program, it stands before every function by which user
// code gets memory, counts the calls of all threads by whose code asks (Partita's own, or
// another library's: an engine, MPI), and passes them on. A program that looks for
// `count_own` and `count_others` can ask in between; the others leave their totals in the
// folder $COUNT_ALLOCATIONS, in a file named after the process: own, others, program,
// parent process, rank of an MPI job or -.
//
//===----------------------------------------------------------------------===//
#include "Asker.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static std::atomic<uint64_t> own{0}, others{0};
/// Set once the libraries that are needed to look at the stack are there.
static std::atomic<bool> looks{false};
__attribute__((constructor)) static void atStart() { looks.store(true); }

/// Inside `look` whatever is asked for is not counted, so that it cannot call itself.
static thread_local bool looking __attribute__((tls_model("initial-exec"))) = false;

__attribute__((noinline)) static void note(void *from) {
  if (looking)
    return;
  looking = true;
  bool mine = !looks.load() || counting::isOwn(counting::asker(from));
  ++(mine ? own : others);
  looking = false;
}
#define NOTE note(__builtin_return_address(0))

/// The next object's function of that name.
template <typename Function> static Function *next(const char *name) {
  return reinterpret_cast<Function *>(::dlsym(RTLD_NEXT, name));
}

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

uint64_t count_own() { return own.load(); }
uint64_t count_others() { return others.load(); }

void *malloc(size_t bytes) {
  NOTE;
  return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
  NOTE;
  return __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes) {
  NOTE;
  return __libc_realloc(old, bytes);
}
void *reallocarray(void *old, size_t count, size_t bytes) {
  NOTE;
  size_t all;
  return __builtin_mul_overflow(count, bytes, &all) ? nullptr : __libc_realloc(old, all);
}
void *memalign(size_t alignment, size_t bytes) {
  NOTE;
  return __libc_memalign(alignment, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) {
  NOTE;
  return __libc_memalign(alignment, bytes);
}
void *valloc(size_t bytes) {
  NOTE;
  return __libc_memalign(4096, bytes);
}
int posix_memalign(void **out, size_t alignment, size_t bytes) {
  NOTE;
  *out = __libc_memalign(alignment, bytes);
  return *out ? 0 : 12; // ENOMEM
}

// By system call, because the first callers come before dlsym works.
void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
  NOTE;
  return reinterpret_cast<void *>(
      ::syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}
void *mmap64(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
  NOTE;
  return reinterpret_cast<void *>(
      ::syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}
void *mremap(void *at, size_t bytes, size_t to, int flags, ...) {
  NOTE;
  return reinterpret_cast<void *>(::syscall(SYS_mremap, at, bytes, to, flags, nullptr));
}
void *sbrk(intptr_t step) {
  if (step != 0)
    NOTE;
  return next<void *(intptr_t)>("sbrk")(step);
}
int brk(void *end) {
  NOTE;
  return next<int(void *)>("brk")(end);
}
}

static void leaveTotal() {
  const char *folder = std::getenv("COUNT_ALLOCATIONS");
  if (!folder)
    return;
  auto mine = static_cast<unsigned long long>(own.load());
  auto theirs = static_cast<unsigned long long>(others.load());
  char text[512];
  std::snprintf(text, sizeof(text), "%s/%d", folder, static_cast<int>(::getpid()));
  int file = ::open(text, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const char *rank = std::getenv("OMPI_COMM_WORLD_RANK");
  int length = std::snprintf(text, sizeof(text), "%llu %llu %s %d %s\n", mine, theirs,
                             program_invocation_short_name, static_cast<int>(::getppid()),
                             rank ? rank : "-");
  (void)!::write(file, text, static_cast<size_t>(length));
  ::close(file);
}
__attribute__((destructor)) static void atExit() { leaveTotal(); }
extern "C" void _exit(int status) {
  leaveTotal();
  ::syscall(SYS_exit_group, status);
  __builtin_unreachable();
}
