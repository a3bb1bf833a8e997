//===- TestFolder.h - A folder that goes with the test ----------*- C++ -*-===//
#ifndef PARTITA_TEST_UNIT_BASE_TESTFOLDER_H
#define PARTITA_TEST_UNIT_BASE_TESTFOLDER_H

#include <filesystem>
#include <string>
#include <unistd.h>

namespace partita {

struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/partita-test-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder &) = delete;
  Folder &operator=(const Folder &) = delete;
  std::string operator/(const std::string &file) const { return path + "/" + file; }
};

} // namespace partita

#endif // PARTITA_TEST_UNIT_BASE_TESTFOLDER_H
