//===- AsideTest.cpp - What is written aside, and what killed writers leave ---===//
#include "TestFolder.h"

#include "partita/Base/Files/Aside.h"
#include "partita/Base/Files/File.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace partita;
namespace fs = std::filesystem;

static size_t entries(const std::string &folder) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST_CASE("what is written aside goes, or gets its name") {
  Folder folder;
  std::string out = folder / "out";
  {
    auto file = Aside::file(out);
    REQUIRE(file);
    CHECK(fs::exists(file->path()));
    CHECK(!fs::exists(out));
  }
  CHECK(fs::is_empty(folder.path));
  auto file = Aside::file(out);
  REQUIRE(file);
  REQUIRE(file->commit());
  CHECK(fs::exists(out));
  CHECK(entries(folder.path) == 1);
  CHECK_THAT(Aside::file(folder / "no/out").error().message,
             Catch::Contains("cannot write '" + (folder / "no/out") + "'"));
}

TEST_CASE("a folder aside has the number that its writers agree on") {
  Folder folder;
  std::string out = folder / "out", name = Aside::nameOf(out, 0x1234);
  CHECK(name == out + ".tmp-0000000000001234");
  auto aside = Aside::folder(out, 0x1234);
  REQUIRE(aside);
  CHECK(aside->path() == name);
  REQUIRE(writeSynced(name + "/file", "other"));
  REQUIRE(writeSynced(name + "/file", "text"));
  REQUIRE(syncFolder(name));
  REQUIRE(aside->commit());
  CHECK(*readFile(out + "/file") == "text");
  CHECK(writeSynced(folder / "no/file", "text").error().message ==
        "cannot write '" + (folder / "no/file") + "': No such file or directory");
  CHECK(syncFolder(folder / "no").error().message ==
        "cannot open '" + (folder / "no") + "': No such file or directory");
}

TEST_CASE("threads of one process write to one place, each aside for itself") {
  Folder folder;
  std::string out = folder / "out";
  std::vector<std::string> texts;
  for (char c = 'a'; c < 'e'; ++c)
    texts.emplace_back(100'000, c);
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (const std::string &text : texts)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i)
        failures += !writeFile(out, text);
    });
  for (std::thread &thread : threads)
    thread.join();
  CHECK(failures == 0);
  CHECK(std::ranges::count(texts, *readFile(out)) == 1);
  CHECK(entries(folder.path) == 1);
}

TEST_CASE("a process that ends removes what it has aside, and only that") {
  Folder folder;
  pid_t child = ::fork();
  if (child == 0) {
    auto file = Aside::file(folder / "file");
    auto place = Aside::folder(folder / "place");
    auto done = Aside::file(folder / "done");
    bool isMade = file && place && done && done->commit() &&
                  place->path().starts_with(folder / "place.tmp-") &&
                  writeFile(place->path() + "/half", "written") &&
                  entries(folder.path) == 3;
    ::_exit(isMade && Aside::removeAll() && Aside::removeAll() ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(fs::exists(folder / "done"));
  CHECK(entries(folder.path) == 1);
}

TEST_CASE(
    "what a killed process wrote aside is removed, what a living one writes stays") {
  Folder folder;
  std::string out = folder / "out";
  for (bool isFolder : {false, true}) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    pid_t child = ::fork();
    if (child == 0) {
      auto aside = isFolder ? Aside::folder(out) : Aside::file(out);
      if (isFolder)
        (void)!writeFile(aside->path() + "/half", "written");
      (void)!::write(ready[1], aside ? "y" : "n", 1);
      ::pause();
      ::_exit(1);
    }
    char said = 0;
    REQUIRE(::read(ready[0], &said, 1) == 1);
    REQUIRE(said == 'y');
    std::string theirs;
    for (const auto &entry : fs::directory_iterator(folder.path))
      if (entry.path() != out)
        theirs = entry.path();
    // Writing to the same place leaves it alone, and goes elsewhere.
    REQUIRE(writeFile(out, "mine"));
    CHECK(fs::exists(theirs));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    CHECK(fs::exists(theirs));
    REQUIRE(writeFile(out, "mine"));
    CHECK(!fs::exists(theirs));
    CHECK(entries(folder.path) == 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
}

TEST_CASE("other names, and links, are not taken for what was abandoned") {
  Folder folder;
  for (const char *name : {"out.tmp-notes", "out.tmp-", "out.tmp-2024",
                           "other.tmp-0123456789abcdef", "out.tmp"})
    REQUIRE(writeFile(folder / name, "kept"));
  REQUIRE(writeFile(folder / "target", "kept"));
  fs::create_symlink(folder / "target", folder / "out.tmp-0123456789abcdef");
  removeAbandoned(folder / "out");
  CHECK(entries(folder.path) == 7);
  CHECK(*readFile(folder / "target") == "kept");
}

TEST_CASE("a link is written through, whether it leads to a file or to none yet") {
  Folder folder;
  fs::create_directory(folder / "data");
  for (const char *target : {"data/there", "data/new"}) {
    if (std::string(target) == "data/there")
      REQUIRE(writeFile(folder / target, "old"));
    fs::remove(folder / "link");
    fs::remove(folder / "second");
    fs::create_symlink(target, folder / "link");
    fs::create_symlink(folder / "link", folder / "second");
    REQUIRE(writeFile(folder / "second", "new"));
    CHECK(fs::is_symlink(folder / "second"));
    CHECK(fs::is_symlink(folder / "link"));
    CHECK(*readFile(folder / target) == "new");
  }
  fs::create_symlink("circle", folder / "circle");
  auto ok = writeFile(folder / "circle", "new");
  REQUIRE(!ok);
  CHECK_THAT(ok.error().message, Catch::StartsWith("cannot write"));
  CHECK(entries(folder.path) == 4);
}

TEST_CASE("pipes, devices and descriptors are written into") {
  Folder folder;
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  auto read = [](int from) {
    char text[16];
    ssize_t n = ::read(from, text, sizeof text);
    return std::string(text, n < 0 ? 0 : static_cast<size_t>(n));
  };
  for (std::string name : {"/dev/fd/", "/proc/self/fd/"}) {
    REQUIRE(writeFile(name + std::to_string(ends[1]), "text"));
    CHECK(read(ends[0]) == "text");
  }
  std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  // Nobody reads it: an error, and no wait.
  auto ok = writeFile(pipe, "text");
  REQUIRE(!ok);
  CHECK_THAT(ok.error().message, Catch::StartsWith("cannot write '" + pipe + "'"));
  int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(writeFile(pipe, "text"));
  CHECK(read(reader) == "text");
  CHECK(fs::is_fifo(pipe));
  CHECK_THAT(Aside::file(pipe).error().message,
             Catch::EndsWith("': it is not a regular file"));
  REQUIRE(writeFile("/dev/null", "text"));
  CHECK(fs::is_character_file("/dev/null"));
  // A regular file behind a descriptor is written where the descriptor is.
  int fd = ::open((folder / "log").c_str(), O_WRONLY | O_CREAT, 0600);
  REQUIRE(::write(fd, "first ", 6) == 6);
  REQUIRE(writeFile("/dev/fd/" + std::to_string(fd), "second "));
  REQUIRE(::write(fd, "third", 5) == 5);
  CHECK(*readFile(folder / "log") == "first second third");
  for (int open : {ends[0], ends[1], reader, fd})
    ::close(open);
}

TEST_CASE("modes are those that the user's mask leaves, or those that were there") {
  Folder folder;
  auto mode = [](const std::string &path) {
    return static_cast<unsigned>(fs::status(path).permissions());
  };
  mode_t before = ::umask(0007);
  bool written = writeFile(folder / "file", "text").has_value();
  ::umask(0022);
  written &= writeFile(folder / "other", "text").has_value() &&
             writeFile(folder / "file", "again").has_value();
  unsigned place = 0;
  if (auto aside = Aside::folder(folder / "place"))
    place = mode(aside->path());
  ::umask(before);
  CHECK(written);
  CHECK(mode(folder / "file") == 0660);
  CHECK(mode(folder / "other") == 0644);
  CHECK(place == 0755);
}
