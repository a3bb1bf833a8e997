//===- CountAllocations.cpp - Counts what a process allocates -------------===//
//
// Preloaded (LD_PRELOAD) into a program, it stands before every function by which user
// code gets memory, counts the calls of all threads, and passes them on. A program that
// looks for `count_allocations` can ask in between; the others leave their total in the
// folder $COUNT_ALLOCATIONS, in a file named after the process.
//
//===----------------------------------------------------------------------===//
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static std::atomic<uint64_t> calls{0};

/// The next object's function of that name.
template <typename Function> static Function *next(const char *name) {
  return reinterpret_cast<Function *>(::dlsym(RTLD_NEXT, name));
}

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

uint64_t count_allocations() { return calls.load(); }

void *malloc(size_t bytes) {
  ++calls;
  return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
  ++calls;
  return __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes) {
  ++calls;
  return __libc_realloc(old, bytes);
}
void *reallocarray(void *old, size_t count, size_t bytes) {
  ++calls;
  size_t all;
  return __builtin_mul_overflow(count, bytes, &all) ? nullptr : __libc_realloc(old, all);
}
void *memalign(size_t alignment, size_t bytes) {
  ++calls;
  return __libc_memalign(alignment, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
void *valloc(size_t bytes) { return memalign(4096, bytes); }
int posix_memalign(void **out, size_t alignment, size_t bytes) {
  *out = memalign(alignment, bytes);
  return *out ? 0 : 12; // ENOMEM
}

// By system call, because the first callers come before dlsym works.
void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
  ++calls;
  return reinterpret_cast<void *>(
      ::syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}
void *mmap64(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
  return mmap(at, bytes, protection, flags, file, offset);
}
void *mremap(void *at, size_t bytes, size_t to, int flags, ...) {
  ++calls;
  return reinterpret_cast<void *>(::syscall(SYS_mremap, at, bytes, to, flags, nullptr));
}
void *sbrk(intptr_t step) {
  calls += step != 0;
  return next<void *(intptr_t)>("sbrk")(step);
}
int brk(void *end) {
  ++calls;
  return next<int(void *)>("brk")(end);
}
}

static void leaveTotal() {
  const char *folder = std::getenv("COUNT_ALLOCATIONS");
  if (!folder)
    return;
  uint64_t total = calls.load();
  char text[512];
  std::snprintf(text, sizeof(text), "%s/%d", folder, static_cast<int>(::getpid()));
  int file = ::open(text, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  int length = std::snprintf(text, sizeof(text), "%llu %s\n",
                             static_cast<unsigned long long>(total),
                             program_invocation_short_name);
  (void)!::write(file, text, static_cast<size_t>(length));
  ::close(file);
}
__attribute__((destructor)) static void atExit() { leaveTotal(); }
extern "C" void _exit(int status) {
  leaveTotal();
  ::syscall(SYS_exit_group, status);
  __builtin_unreachable();
}
