//===- Disk.cpp - What a process asks of a file system --------------------===//
#include "Disk.h"

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace disk;

//===----------------------------------------------------------------------===//
// Recording
//===----------------------------------------------------------------------===//

static std::mutex mutex;
static std::string root; ///< "": nothing is recorded
static std::vector<Operation> operations;
static size_t failing = SIZE_MAX;
static int failure = 0;

void disk::record(const std::string &folder) {
  std::lock_guard guard(mutex);
  root = folder;
  operations.clear();
  failing = SIZE_MAX;
}

std::vector<Operation> disk::stop() {
  std::lock_guard guard(mutex);
  root.clear();
  failing = SIZE_MAX;
  return std::move(operations);
}

size_t disk::count() {
  std::lock_guard guard(mutex);
  return operations.size();
}

void disk::failFrom(size_t number, int error) {
  std::lock_guard guard(mutex);
  failing = number, failure = error;
}

/// Relative to the folder; false: it is not below it.
static bool relative(const std::string &path, std::string &result) {
  if (root.empty() || !path.starts_with(root))
    return false;
  if (path.size() == root.size())
    return result.clear(), true;
  if (path[root.size()] != '/')
    return false;
  result = path.substr(root.size() + 1);
  return true;
}

static std::string pathOf(int fd) {
  char name[64], path[PATH_MAX];
  std::snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  ssize_t n = ::readlink(name, path, sizeof path);
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : std::string();
}

/// Whether an operation may be done, which is recorded then.
static bool note(Operation::Kind kind, const std::string &path,
                 const std::string &to = {}, std::string bytes = {}) {
  std::lock_guard guard(mutex);
  Operation it{kind, {}, {}, std::move(bytes)};
  if (!relative(path, it.path) || (kind == Operation::Rename && !relative(to, it.to)))
    return true;
  if (operations.size() >= failing) {
    errno = failure;
    return false;
  }
  operations.push_back(std::move(it));
  return true;
}

extern "C" int open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  int mode = flags & O_CREAT ? va_arg(rest, int) : 0;
  va_end(rest);
  struct stat info;
  bool isNew = (flags & O_CREAT) && (::stat(path, &info) != 0 || (flags & O_TRUNC));
  if (isNew && !note(Operation::Create, path))
    return -1;
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

extern "C" int mkdir(const char *path, mode_t mode) {
  if (!note(Operation::MakeFolder, path))
    return -1;
  return static_cast<int>(::syscall(SYS_mkdir, path, mode));
}

extern "C" ssize_t write(int fd, const void *data, size_t bytes) {
  if (!note(Operation::Write, pathOf(fd), {}, {static_cast<const char *>(data), bytes}))
    return -1;
  return ::syscall(SYS_write, fd, data, bytes);
}

extern "C" int fsync(int fd) {
  struct stat info;
  bool isFolder = ::fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
  if (!note(isFolder ? Operation::SyncFolder : Operation::SyncFile, pathOf(fd)))
    return -1;
  return 0; // the record is what counts
}

extern "C" int rename(const char *from, const char *to) {
  if (!note(Operation::Rename, from, to))
    return -1;
  return static_cast<int>(::syscall(SYS_rename, from, to));
}

extern "C" int unlinkat(int folder, const char *name, int flags) {
  if (!note(Operation::Remove,
            *name == '/' ? name : pathOf(folder) + "/" + std::string(name)))
    return -1;
  return static_cast<int>(::syscall(SYS_unlinkat, folder, name, flags));
}
extern "C" int unlink(const char *path) { return ::unlinkat(AT_FDCWD, path, 0); }
extern "C" int rmdir(const char *path) {
  return ::unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}
extern "C" int remove(const char *path) {
  struct stat info;
  bool isFolder = ::lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
  return ::unlinkat(AT_FDCWD, path, isFolder ? AT_REMOVEDIR : 0);
}

//===----------------------------------------------------------------------===//
// States that a crash leaves
//===----------------------------------------------------------------------===//

Model::Model() { nodes.emplace_back().isFolder = true; }

static std::pair<std::string, std::string> split(const std::string &path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos
             ? std::pair(std::string(), path)
             : std::pair(path.substr(0, slash), path.substr(slash + 1));
}

int Model::find(const std::string &path) const {
  if (path.empty())
    return 0;
  auto [folder, name] = split(path);
  const auto &names = nodes[static_cast<size_t>(find(folder))].names;
  return names.at(name);
}

/// Names of one folder that change together.
void Model::change(const std::string &folder,
                   std::vector<std::pair<std::string, int>> names) {
  Node &node = nodes[static_cast<size_t>(find(folder))];
  for (const auto &[name, to] : names)
    if (to < 0)
      node.names.erase(name);
    else
      node.names[name] = to;
  node.changes.push_back(std::move(names));
}

void Model::apply(const Operation &it) {
  auto [folder, name] = split(it.path);
  switch (it.kind) {
  case Operation::MakeFolder:
  case Operation::Create:
    nodes.emplace_back().isFolder = it.kind == Operation::MakeFolder;
    return change(folder, {{name, static_cast<int>(nodes.size()) - 1}});
  case Operation::Write:
    nodes[static_cast<size_t>(find(it.path))].bytes += it.bytes;
    return;
  case Operation::SyncFile: {
    Node &file = nodes[static_cast<size_t>(find(it.path))];
    file.synced = file.bytes;
    return;
  }
  case Operation::SyncFolder: {
    Node &node = nodes[static_cast<size_t>(find(it.path))];
    node.syncedNames = node.names;
    node.changes.clear();
    return;
  }
  case Operation::Rename:
    return change(folder, {{name, -1}, {split(it.to).second, find(it.path)}});
  case Operation::Remove:
    return change(folder, {{name, -1}});
  }
}

size_t Model::numPending() const {
  size_t count = 0;
  for (const Node &node : nodes)
    count += node.changes.size() + (node.bytes != node.synced);
  return count;
}

struct Model::Choice {
  Left left;
  std::mt19937 &random;
  size_t alone;
  std::vector<size_t> firstItem; ///< by node

  bool takes(size_t item) {
    bool takes = left == Left::Drawn ? random() % 2 == 0 : left == Left::All;
    return takes != (item == alone);
  }
};

void Model::write(int index, const std::string &path, Choice &choice) const {
  const Node &node = nodes[static_cast<size_t>(index)];
  size_t item = choice.firstItem[static_cast<size_t>(index)];
  if (!node.isFolder) {
    std::string bytes =
        node.bytes != node.synced && !choice.takes(item) ? node.synced : node.bytes;
    // A part of what was written; or its length with zeros, as some systems leave it.
    if (choice.left == Left::Drawn && node.bytes != node.synced && !node.bytes.empty()) {
      if (choice.random() % 3 == 0)
        bytes = node.bytes.substr(0, choice.random() % node.bytes.size());
      else if (choice.random() % 3 == 0)
        std::fill(bytes.begin() + static_cast<long>(bytes.size() / 2), bytes.end(), '\0');
    }
    std::ofstream(path, std::ios::binary) << bytes;
    return;
  }
  std::map<std::string, int> names = node.syncedNames;
  for (size_t k = 0; k < node.changes.size(); ++k) {
    if (!choice.takes(item + k))
      continue;
    for (const auto &[name, to] : node.changes[k])
      if (to < 0)
        names.erase(name);
      else
        names[name] = to;
  }
  std::filesystem::create_directories(path);
  for (const auto &[name, to] : names)
    write(to, path + "/" + name, choice);
}

void Model::materialize(const std::string &folder, Left left, std::mt19937 &random,
                        size_t alone) const {
  Choice choice{left, random, alone, {}};
  size_t item = 0;
  for (const Node &node : nodes) {
    choice.firstItem.push_back(item);
    item += node.changes.size() + (node.bytes != node.synced);
  }
  std::filesystem::remove_all(folder);
  write(0, folder, choice);
}
