//===- HostWatchTest.cpp - What a launcher makes of agents ----------------===//
#include "../../../lib/Runtime/Launch/HostWatch.h"
#include "../Base/TestFolder.h"

#include "partita/Base/Files/File.h"

#include <arpa/inet.h>
#include <catch2/catch.hpp>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>

using namespace partita;
using namespace partita::runtime;

namespace {
/// A launcher of two ranks, on 'a' and 'b', that knows of no agent yet.
struct Launcher {
  Folder folder;
  std::vector<std::string> told;
  std::unique_ptr<HostWatch> watch;

  Launcher() {
    RunOptions options;
    options.bundle = folder / "bundle";
    std::filesystem::create_directories(options.bundle);
    REQUIRE(writeFile(options.bundle + "/bundle.json", "{}").has_value());
    options.hostfile = folder / "hosts";
    // Names of this host, which nobody asks by ssh.
    REQUIRE(writeFile(options.hostfile, "localhost\n127.0.0.1 slots=3\n").has_value());
    options.data.checkpoints.folder = "/c";
    Bundle bundle;
    bundle.ranks = 2;
    BundleEntry entry;
    BundleStage stage;
    stage.arenaBytes = 5000;
    entry.stages = {stage};
    bundle.entries = {entry};
    options.entry = "main";
    auto made = HostWatch::listen(
        options, bundle, [this](std::string_view text) { told.emplace_back(text); });
    REQUIRE(made.has_value());
    watch = std::move(*made);
    hash = bundleHash(options.bundle);
  }
  std::string hash;

  std::string token() const { return watch->where().substr(0, 32); }
  std::string hello(int first, const std::string &more = {}) const {
    return "agent " + token() + " " + std::to_string(first) + " " +
           (more.empty() ? std::string(partitaVersion()) + " " + hash + " 1000000"
                         : more);
  }
  LineSocket connect() const {
    const std::string port = watch->where().substr(33, watch->where().find(',', 33) - 33);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
    REQUIRE(::connect(socket.get(), reinterpret_cast<sockaddr *>(&address),
                      sizeof(address)) == 0);
    return LineSocket(std::move(socket));
  }
  /// Looks for so long, while agents beat if they are given.
  void look(double seconds, const std::vector<LineSocket *> &beating = {}) {
    using Clock = std::chrono::steady_clock;
    for (auto until = Clock::now() + std::chrono::duration<double>(seconds);
         Clock::now() < until && !watch->verdict();) {
      for (LineSocket *agent : beating)
        agent->send("beat 7 " + std::to_string(wallClock()));
      watch->look();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
};
} // namespace

TEST_CASE("hosts: an agent that knows the secret is given leases") {
  Launcher run;
  LineSocket stranger = run.connect(), agent = run.connect();
  stranger.send("agent 0123 0 1 2 3");
  agent.send(run.hello(0));
  agent.send("beat 42 " + std::to_string(wallClock()));
  run.look(0.2);
  CHECK(agent.read());
  CHECK(agent.take() == "lease 42");
  CHECK(!stranger.read()); // sent away
  CHECK(!run.watch->verdict());
  // A second agent of the same host is sent away, too.
  LineSocket second = run.connect();
  second.send(run.hello(0));
  run.look(0.1, {&agent});
  CHECK(!second.read());
  CHECK(run.told.empty());
}

TEST_CASE("hosts: what differs is one sentence for each") {
  Launcher run;
  LineSocket one = run.connect(), two = run.connect();
  one.send(run.hello(0, "0.0.1 " + run.hash + " 1000000"));
  two.send(run.hello(1, std::string(partitaVersion()) + " 00ff 1000000"));
  run.look(0.5);
  REQUIRE(run.watch->verdict());
  CHECK(!run.watch->verdict()->isLost);
  const std::string bundle = run.folder / "bundle";
  CHECK(run.watch->verdict()->text ==
        "host 'localhost': has Partita 0.0.1, this host has " +
            std::string(partitaVersion()) + "; host '127.0.0.1': '" + bundle +
            "' is another bundle there (hash 00ff) than on this host (" + run.hash + ")");
}

TEST_CASE("hosts: a clock, a folder and memory are told of, and end nothing") {
  Launcher run;
  LineSocket agent = run.connect();
  agent.send(run.hello(1, std::string(partitaVersion()) + " " + run.hash + " 4096"));
  agent.send("beat 1 " + std::to_string(wallClock() - 60'000));
  agent.send("beat 2 " + std::to_string(wallClock() - 60'000));
  agent.send("folder No such device");
  agent.send("folder ");
  run.look(0.2);
  CHECK(
      run.told ==
      std::vector<std::string>{
          "host '127.0.0.1': 4.00 KiB of memory are free there, its ranks need 4.88 KiB",
          "host '127.0.0.1': its clock is 60 s behind this host's",
          "host '127.0.0.1': the folder '/c' cannot be written there: No such device",
          "host '127.0.0.1': the folder '/c' can be written again"});
  CHECK(!run.watch->verdict());
}

TEST_CASE("hosts: an agent that is gone, one that is done, and one that is silent") {
  {
    Launcher run;
    LineSocket agent = run.connect();
    agent.send(run.hello(0));
    run.look(0.1, {&agent});
    agent.send("bye");
    run.look(0.1);
    agent.close();
    run.look(0.1);
    CHECK(!run.watch->verdict());
  }
  {
    Launcher run;
    LineSocket agent = run.connect();
    agent.send(run.hello(0));
    run.look(0.1, {&agent});
    agent.close();
    run.look(1);
    REQUIRE(run.watch->verdict());
    CHECK(run.watch->verdict()->isLost);
    CHECK(run.watch->verdict()->text == "host 'localhost': its agent is gone");
  }
  Launcher run;
  LineSocket silent = run.connect(), beats = run.connect();
  silent.send(run.hello(0));
  beats.send(run.hello(1));
  run.look(2, {&beats});
  CHECK(!run.watch->verdict());
  run.look(5, {&beats});
  REQUIRE(run.watch->verdict());
  CHECK(run.watch->verdict()->text ==
        "host 'localhost': it stands still: it receives, and nothing has run there for "
        "3 s");
  // Leases end with the verdict.
  while (beats.read() && beats.take())
    ;
  beats.send("beat 8 " + std::to_string(wallClock()));
  for (int k = 0; k < 5; ++k) {
    run.watch->look();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(beats.read());
  for (auto line = beats.take(); line; line = beats.take())
    CHECK(*line != "lease 8");
}
