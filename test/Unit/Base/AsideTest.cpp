//===- AsideTest.cpp - What is written aside, and what killed writers leave ---===//
#include "TestFolder.h"

#include "partita/Base/Files/Aside.h"
#include "partita/Base/Files/File.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <thread>

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
  auto file = Aside::file(folder / "file");
  auto place = Aside::folder(folder / "place");
  REQUIRE(file);
  REQUIRE(place);
  CHECK_THAT(place->path(), Catch::StartsWith(folder / "place.tmp-"));
  REQUIRE(writeFile(place->path() + "/half", "written"));
  auto done = Aside::file(folder / "done");
  REQUIRE(done);
  REQUIRE(done->commit());
  CHECK(Aside::removeAll());
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
