//===- SessionTest.cpp - Bundles run, and fail, as promised ---------------===//
#include "../../E2E/count-allocations/Asker.h"
#include "../Base/TestFolder.h"
#include "../RuntimeStage/Model.h"

#include "partita/Base/CpuFeatures.h"
#include "partita/Base/Files/Npy.h"
#include "partita/Base/Files/TensorProto.h"
#include "partita/Runtime/Launch.h"
#include "partita/Runtime/RunBundle.h"
#include "partita/Runtime/Session.h"

#include <catch2/catch.hpp>

#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <dlfcn.h>
#include <map>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace partita;
using namespace partita::runtime;
using Clock = std::chrono::steady_clock;

//===----------------------------------------------------------------------===//
// Allocation counting: this executable's malloc family goes first. What libraries that
// are not Partita's take for themselves does not count.
//===----------------------------------------------------------------------===//

static std::atomic<bool> countsCalls{false};
static std::atomic<uint64_t> allocations{0}, mappings{0};

// The sanitizers bring their own.
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
extern "C" void *__libc_malloc(size_t);
extern "C" void *__libc_realloc(void *, size_t);
extern "C" void *__libc_calloc(size_t, size_t);
extern "C" void *__libc_memalign(size_t, size_t);
__attribute__((noinline)) static void note(std::atomic<uint64_t> &count, void *from) {
  static thread_local bool looking = false;
  if (looking || !countsCalls.load(std::memory_order_relaxed))
    return;
  looking = true;
  count += counting::isOwn(counting::asker(from));
  looking = false;
}
extern "C" void *malloc(size_t size) {
  note(allocations, __builtin_return_address(0));
  return __libc_malloc(size);
}
extern "C" void *realloc(void *old, size_t size) {
  note(allocations, __builtin_return_address(0));
  return __libc_realloc(old, size);
}
extern "C" void *calloc(size_t count, size_t size) {
  note(allocations, __builtin_return_address(0));
  return __libc_calloc(count, size);
}
extern "C" int posix_memalign(void **out, size_t alignment, size_t size) {
  note(allocations, __builtin_return_address(0));
  *out = __libc_memalign(alignment, size);
  return *out ? 0 : ENOMEM;
}

extern "C" void *mmap(void *at, size_t size, int protection, int flags, int fd,
                      off_t offset) {
  note(mappings, __builtin_return_address(0));
  return reinterpret_cast<void *>(
      ::syscall(SYS_mmap, at, size, protection, flags, fd, offset));
}
#endif

namespace {
/// The bundle with its input files.
struct Fixture : Folder {
  std::string bundle = *this / "bundle";
  explicit Fixture(const std::string &stage = PARTITA_TEST_STAGE_4,
                   const std::string &mesh = "dp=2,tp=2") {
    REQUIRE(testmodel::writeBundle(bundle, stage, mesh));
    REQUIRE(writeNpy(*this / "x.npy", testmodel::input()));
    setMode(testmodel::Normal, 0);
  }
  void setMode(int64_t what, int64_t rank) {
    REQUIRE(writeTensorProto(*this / "mode.pb", testmodel::mode(what, rank)));
  }
  std::string arguments() const {
    return bundle + " --input x=" + (*this / "x.npy") +
           " --input mode=" + (*this / "mode.pb");
  }
};

struct Outcome {
  int status;
  std::string text;
  double seconds;
};
} // namespace

static Outcome shell(const std::string &command) {
  auto start = Clock::now();
  FILE *pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string text;
  std::array<char, 4096> buffer;
  while (size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
    text.append(buffer.data(), n);
  int status = ::pclose(pipe);
  double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text, seconds};
}

static Outcome run(const std::string &arguments) {
  return shell(std::string(PARTITA_TEST_RUN) + " " + arguments);
}

/// Of mpirun, partita-run and its ranks.
static int processesOf(const std::string &bundle) {
  return std::stoi(shell("pgrep -fc '[p]artita-run " + bundle + "'").text);
}

static double largestDifference(const HostTensor &a, const HostTensor &b) {
  double worst = a.shape == b.shape && a.type == b.type ? 0 : INFINITY;
  for (int64_t i = 0; i < b.size() && worst < INFINITY; ++i)
    worst = std::max<double>(worst, std::fabs(a.data<float>()[i] - b.data<float>()[i]));
  return worst;
}

/// Four of ten requests, every rank's tasks in each.
static void checkProfile(const RunProfile &profile, int64_t ranks) {
  REQUIRE(profile.ranks.size() == static_cast<size_t>(ranks));
  REQUIRE(profile.programs.size() == 1);
  const auto &tasks = profile.programs[0].tasks;
  for (const RankRecord &rank : profile.ranks) {
    size_t requests = 0;
    double last = 0;
    std::map<std::string, uint64_t> received;
    for (const RunSpan &span : rank.spans) {
      CHECK(span.begin <= span.end);
      CHECK(span.waited >= 0);
      CHECK(span.waited <= span.end - span.begin);
      CHECK(span.end >= last);
      last = span.end;
      requests += span.what == RunSpan::Request;
      if (span.what == RunSpan::Task)
        received[tasks[span.index].node] += span.received;
    }
    CHECK(requests == 4);
    CHECK(rank.spans.size() == 4 * (tasks.size() + 1));
    CHECK(rank.spans.back().request == 3);
    // An all-reduce over tp=2 of the rank's rows: half of it twice. 7 rows are 8 on dp=2,
    // and dp=4.
    uint64_t rows = 8 / (static_cast<uint64_t>(ranks) / 2);
    CHECK(received["fc2"] == 4 * rows * testmodel::width * 4);
  }
}

TEST_CASE("a bundle runs on threads and equals the reference, requests do not allocate") {
  for (auto [stage, mesh] : {std::pair(PARTITA_TEST_STAGE_4, "dp=2,tp=2"),
                             std::pair(PARTITA_TEST_STAGE_8, "dp=4,tp=2")}) {
    Fixture files(stage, mesh);
    SessionOptions options;
    options.profile = 4;
    countsCalls = true;
    auto session = Session::load(files.bundle, options);
    countsCalls = false;
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
    CHECK(allocations > 100); // the counter counts
#endif
    if (!session)
      FAIL(session.error().message);
    REQUIRE((*session)->inputs().size() == 2);
    CHECK((*session)->inputs()[0].name == "x");
    auto x = testmodel::input(), mode = testmodel::mode(testmodel::Normal, 0);
    auto y = HostTensor::zeros(DType::F32, {testmodel::rows, testmodel::width});
    const std::byte *inputs[] = {x.bytes.data(), mode.bytes.data()};
    std::byte *outputs[] = {y.bytes.data()};
    allocations = mappings = 0;
    countsCalls = true;
    bool good = true;
    for (int k = 0; k < 10; ++k)
      good &= (*session)->run(inputs, outputs).has_value();
    countsCalls = false;
    CHECK(good);
    CHECK(allocations == 0);
    CHECK(mappings == 0);
    CHECK(largestDifference(y, testmodel::expected()) < 1e-5);
    auto profile = (*session)->profile();
    REQUIRE(profile);
    checkProfile(*profile, Mesh::parse(mesh)->numRanks());
  }
}

TEST_CASE("partita-run: local and mpi give the same outputs") {
  Fixture files;
  for (std::string transport : {"local", "mpi"}) {
    auto result =
        run(files.arguments() + " --transport " + transport + " --outputs-dir " +
            (files / transport) + " --npy --repeat 3 --profile");
    INFO(result.text);
    REQUIRE(result.status == 0);
    CHECK_THAT(result.text, Catch::Contains("request 2: ") &&
                                Catch::Contains("output y: f32[7, 16]") &&
                                Catch::Contains("fc2 (matmul, all-reduce, wait)"));
    auto y = readTensorProto(files / (transport + "/output_0.pb"));
    REQUIRE(y);
    CHECK(y->name == "y");
    CHECK(largestDifference(y->tensor, testmodel::expected()) < 1e-5);
    CHECK(largestDifference(*readNpy(files / (transport + "/output_0.npy")),
                            testmodel::expected()) < 1e-5);
  }
}

TEST_CASE("partita-run as an MPI program, and with the wrong number of ranks") {
  Fixture files;
  // Open MPI's mpirun sometimes never ends after a job that failed.
  std::string mpirun = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                       "timeout -k 1 20 mpirun --oversubscribe --bind-to none -n ";
  std::string program = std::string(" ") + PARTITA_TEST_RUN + " " + files.arguments();
  auto good = shell(mpirun + "4" + program);
  INFO(good.text);
  CHECK(good.status == 0);
  CHECK_THAT(good.text, Catch::Contains("output y"));
  // As a word that the shell finds in PATH.
  std::filesystem::path self = PARTITA_TEST_RUN;
  auto word = shell("PATH=" + self.parent_path().string() + ":$PATH " + mpirun + "4 " +
                    self.filename().string() + " " + files.arguments());
  INFO(word.text);
  CHECK(word.status == 0);
  auto bad = shell(mpirun + "2" + program);
  CHECK(bad.status != 0);
  CHECK_THAT(bad.text, Catch::Contains("the bundle is for 4 ranks, MPI started 2"));
}

TEST_CASE("a rank that dies ends the run within seconds, named") {
  Fixture files;
  for (auto [what, signal] :
       {std::pair(testmodel::Kill, "signal 9"), std::pair(testmodel::Crash, "signal 11")})
    for (std::string transport : {"local", "mpi"}) {
      files.setMode(what, 2);
      auto result = run(files.arguments() + " --transport " + transport +
                        " --outputs-dir " + (files / "out"));
      INFO(transport << ": " << result.text);
      // A crash is what the program does, and would do again.
      CHECK(result.status == (what == testmodel::Kill ? againStatus : 1));
      CHECK(result.seconds < 5);
      CHECK_THAT(result.text,
                 Catch::StartsWith("error: rank 2") && Catch::Contains(signal));
      CHECK(std::count(result.text.begin(), result.text.end(), '\n') == 1);
      CHECK(!std::filesystem::exists(files / "out"));
    }
}

TEST_CASE("tensors go to a watched process and back, and its death is an error") {
  Fixture files;
  std::map<std::string, HostTensor> inputs{
      {"x", testmodel::input()}, {"mode", testmodel::mode(testmodel::Normal, 0)}},
      states, watchedStates;
  auto expected = runBundle(files.bundle, inputs, states, {});
  REQUIRE(expected);
  std::vector<double> seconds;
  auto got = runBundleWatched(
      files.bundle, inputs, watchedStates,
      {.repeat = 2, .timed = [&](double took) { seconds.push_back(took); }});
  REQUIRE(got);
  CHECK(seconds.size() == 2);
  REQUIRE(got->size() == expected->size());
  for (size_t k = 0; k < got->size(); ++k) {
    CHECK((*got)[k].type == (*expected)[k].type);
    CHECK((*got)[k].shape == (*expected)[k].shape);
    CHECK((*got)[k].bytes == (*expected)[k].bytes);
  }
  CHECK(watchedStates.size() == states.size());
  for (auto [what, signal] : {std::pair(testmodel::Kill, "signal 9"),
                              std::pair(testmodel::Crash, "signal 11")}) {
    inputs["mode"] = testmodel::mode(what, 2);
    auto died = runBundleWatched(files.bundle, inputs, watchedStates, {});
    REQUIRE_FALSE(died);
    CHECK_THAT(died.error().message,
               Catch::StartsWith("rank 2") && Catch::Contains(signal));
  }
}

TEST_CASE("ranks that run, wait or load end soon after the flag is raised") {
  Fixture files;
  std::map<std::string, HostTensor> inputs{
      {"x", testmodel::input()}, {"mode", testmodel::mode(testmodel::Normal, 0)}},
      states;
  int flag = 0;
  auto raised = runBundle(files.bundle, inputs, states, {.stop = StopFlag(&flag)});
  REQUIRE(raised);
  // Requests of hours.
  Clock::time_point at;
  std::thread raise([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    at = Clock::now();
    std::atomic_ref<int>(flag).store(1);
  });
  auto ended = runBundle(files.bundle, inputs, states,
                         {.repeat = 1'000'000'000, .stop = StopFlag(&flag)});
  raise.join();
  REQUIRE_FALSE(ended);
  CHECK(ended.error().message == "cancelled");
  CHECK(std::chrono::duration<double>(Clock::now() - at).count() < 2);
  // While loading; a request on it would find no rank.
  SessionOptions options;
  options.stop = StopFlag(&flag);
  auto session = Session::load(files.bundle, options);
  REQUIRE_FALSE(session);
  CHECK(session.error().message == "cancelled");
}

TEST_CASE("ranks that wait for one that hangs end with the flag, it with the timeout") {
  Fixture files;
  std::map<std::string, HostTensor> inputs{{"x", testmodel::input()},
                                           {"mode", testmodel::mode(testmodel::Hang, 1)}},
      states;
  int flag = 0;
  SessionOptions options;
  options.timeout = 2;
  options.stop = StopFlag(&flag);
  std::thread raise([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::atomic_ref<int>(flag).store(1);
  });
  auto ended = runSession(files.bundle, options, inputs, states, 1, {});
  raise.join();
  REQUIRE_FALSE(ended);
  CHECK(ended.error().message == "cancelled");
}

TEST_CASE("a rank that hangs ends the run after the timeout, named with its node") {
  Fixture files;
  files.setMode(testmodel::Hang, 1);
  for (std::string transport : {"local", "mpi"}) {
    auto result = run(files.arguments() + " --timeout 1 --transport " + transport);
    CHECK(result.status == againStatus);
    CHECK(result.seconds < 5);
    CHECK(result.text == "error: rank 1, node 'guard' (kernel): no progress for 1 s\n");
  }
}

TEST_CASE("a rank that is alone and hangs is seen by the process that watches") {
  Fixture files(PARTITA_TEST_STAGE_1, "dp=1,tp=1");
  auto fine = run(files.arguments() + " --transport local");
  CHECK(fine.status == 0);
  files.setMode(testmodel::Hang, 0);
  auto result = run(files.arguments() + " --timeout 1 --transport local");
  CHECK(result.status == againStatus);
  CHECK(result.seconds < 6);
  CHECK(result.text == "error: rank 0, node 'guard' (kernel): no progress for 1 s\n");
}

TEST_CASE("a process that is stopped ends the run after the timeout, named") {
  Fixture files;
  files.setMode(testmodel::Stop, 1);
  for (std::string transport : {"local", "mpi"}) {
    auto result = run(files.arguments() + " --timeout 1 --transport " + transport);
    CHECK(result.status == againStatus);
    CHECK(result.seconds < 8);
    CHECK(result.text == "error: rank 1, node 'guard' (kernel): no sign of life of the "
                         "process for 1 s\n");
    CHECK(processesOf(files.bundle) == 0);
  }
}

TEST_CASE("a rank that dies or stops between a start and its wait is named") {
  Fixture files;
  for (std::string transport : {"local", "mpi"}) {
    files.setMode(testmodel::Kill + testmodel::Between, 2);
    auto killed = run(files.arguments() + " --transport " + transport);
    INFO(transport << ": " << killed.text);
    CHECK(killed.status == againStatus);
    CHECK(killed.seconds < 5);
    CHECK_THAT(killed.text,
               Catch::StartsWith("error: rank 2, node 'between' (kernel): ") &&
                   Catch::Contains("signal 9"));
    files.setMode(testmodel::Stop + testmodel::Between, 1);
    auto stopped = run(files.arguments() + " --timeout 1 --transport " + transport);
    CHECK(stopped.status == againStatus);
    CHECK(stopped.seconds < 8);
    // With MPI the message of rank 1 may have left with its start. Then rank 0 has all it
    // needs and tells its outputs before the run fails.
    CHECK_THAT(
        stopped.text,
        Catch::EndsWith("error: rank 1, node 'between' (kernel): no sign of life of "
                        "the process for 1 s\n"));
    files.setMode(testmodel::Hang + testmodel::Between, 1);
    auto hung = run(files.arguments() + " --timeout 1 --transport " + transport);
    CHECK(hung.seconds < 5);
    CHECK(hung.status == againStatus);
    CHECK_THAT(hung.text, Catch::EndsWith("error: rank 1, node 'between' (kernel): no "
                                          "progress for 1 s\n"));
  }
}

TEST_CASE("no process is left behind when partita-run itself is killed") {
  Fixture files;
  files.setMode(testmodel::Hang, 1);
  for (std::string transport : {"local", "mpi"}) {
    pid_t child = ::fork();
    if (child == 0) {
      ::execl(PARTITA_TEST_RUN, PARTITA_TEST_RUN, files.bundle.c_str(), "--input",
              ("x=" + (files / "x.npy")).c_str(), "--input",
              ("mode=" + (files / "mode.pb")).c_str(), "--transport", transport.c_str(),
              nullptr);
      ::_exit(127);
    }
    ::usleep(1'500'000);
    CHECK(processesOf(files.bundle) > 1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    int left = -1;
    for (int tries = 0; tries < 80 && left != 0; ++tries, ::usleep(100'000))
      left = processesOf(files.bundle);
    INFO(transport);
    CHECK(left == 0);
  }
}

TEST_CASE("bad inputs are one sentence each") {
  Fixture files;
  auto message = [&](const std::string &arguments) {
    auto result = run(arguments);
    CHECK(result.status == 1);
    CHECK(std::count(result.text.begin(), result.text.end(), '\n') == 1);
    return result.text;
  };
  std::string x = " --input x=" + (files / "x.npy"),
              mode = " --input mode=" + (files / "mode.pb");
  CHECK_THAT(message(files.bundle + x), Catch::Contains("input 'mode' is missing"));
  CHECK_THAT(message(files.bundle + x + mode + " --input z=" + (files / "x.npy")),
             Catch::Contains("there is no input 'z'; the inputs are x, mode"));
  REQUIRE(writeNpy(files / "bad.npy", HostTensor::zeros(DType::F32, {8, 16})));
  CHECK_THAT(message(files.bundle + mode + " --input x=" + (files / "bad.npy")),
             Catch::Contains("has shape [8, 16], expected [7, 16]"));
  REQUIRE(writeNpy(files / "bad.npy", HostTensor::zeros(DType::F64, {7, 16})));
  CHECK_THAT(message(files.bundle + mode + " --input x=" + (files / "bad.npy")),
             Catch::Contains("has element type f64, expected f32"));
  CHECK_THAT(message(files.bundle + mode + " --input x=" + (files / "none.npy")),
             Catch::Contains("cannot open"));
  CHECK_THAT(message((files / "none") + x + mode), Catch::Contains("cannot open bundle"));
  CHECK_THAT(message(files.arguments() + " --transport tcp"),
             Catch::Contains("transport 'tcp' is unknown"));
  CHECK_THAT(message(files.arguments() + " --entry other"),
             Catch::Contains("no entry point 'other'"));
}

TEST_CASE("a damaged bundle is one sentence") {
  Fixture files;
  auto message = [&] {
    auto result = run(files.arguments());
    CHECK(result.status == 1);
    return result.text;
  };
  std::string weights = files / "bundle/weights.bin";
  std::filesystem::resize_file(weights, 100);
  CHECK_THAT(message(), Catch::Contains("has 100 bytes, the bundle was compiled with"));
  std::string json = *readFile(files / "bundle/bundle.json");
  json.replace(json.find("\"format\": 5"), 11, "\"format\": 7");
  REQUIRE(writeFile(files / "bundle/bundle.json", json));
  CHECK_THAT(message(), Catch::Contains("has format 7"));
  Fixture other;
  std::filesystem::resize_file(other / "bundle/stage-0.so", 1000);
  auto result = run(other.arguments());
  CHECK(result.status == 1);
  CHECK_THAT(result.text, Catch::Contains("stage-0.so' is truncated"));
}

TEST_CASE("a flipped bit of a weight is one sentence, unless nobody is to look") {
  Fixture files;
  std::string weights = files / "bundle/weights.bin";
  std::string bytes = *readFile(weights);
  for (size_t at : {size_t(0), bytes.size() / 2, bytes.size() - 1}) {
    std::string damaged = bytes;
    damaged[at] ^= 1;
    REQUIRE(writeFile(weights, damaged));
    for (const char *transport : {"", " --transport mpi"}) {
      auto result = run(files.arguments() + transport);
      CHECK(result.status == 1);
      CHECK_THAT(result.text,
                 Catch::Contains("weights.bin' has other bytes from 0 to ") &&
                     Catch::Contains("it is damaged; compile the model"));
    }
    CHECK(run(files.arguments() + " --no-check").status == 0);
  }
  REQUIRE(writeFile(weights, bytes));
  CHECK(run(files.arguments()).status == 0);
  std::string blocks = *readFile(files / "bundle/weights-0.blocks");
  REQUIRE(writeFile(files / "bundle/weights-0.blocks", blocks.substr(0, 50)));
  CHECK_THAT(run(files.arguments()).text, Catch::Contains("weights-0.blocks', line 2"));
}

#if defined(__x86_64__)
TEST_CASE("a bundle is refused under each feature of a CPU that is masked") {
  Fixture files;
  std::string json = *readFile(files / "bundle/bundle.json"), list;
  std::vector<std::string> features;
  for (std::string_view name : knownCpuFeatures())
    if (hasCpuFeature(name)) {
      features.emplace_back(name);
      list += (list.empty() ? "\"" : ", \"") + features.back() + "\"";
    }
  REQUIRE(features.size() > 10);
  size_t at = json.find("\"cpu_features\": []");
  REQUIRE(at != std::string::npos);
  REQUIRE(writeFile(files / "bundle/bundle.json", json.insert(at + 17, list)));
  for (const std::string &masked : features) {
    SessionOptions options;
    options.hasCpuFeature = [&](std::string_view name) { return name != masked; };
    auto session = Session::load(files.bundle, options);
    REQUIRE(!session);
    CHECK_THAT(session.error().message,
               Catch::Contains("this CPU lacks " + masked) && Catch::EndsWith(masked));
  }
  CHECK(Session::load(files.bundle, {}));
}
#endif

TEST_CASE("a transport of another build is refused in one sentence") {
  Fixture fixture;
  Folder apart;
  std::filesystem::copy_file(PARTITA_TEST_RUN, apart / "partita-run");
  std::filesystem::copy_file(PARTITA_TEST_OLD_MPI, apart / "libpartita_mpi.so");
  Outcome result =
      shell((apart / "partita-run") + " " + fixture.arguments() + " --transport mpi");
  INFO(result.text);
  CHECK(result.status != 0);
  CHECK(result.text.find("libpartita_mpi.so' is of another build of Partita than this "
                         "runtime; install both from one build") != std::string::npos);
  CHECK(result.text.find("ignal") == std::string::npos);
}
