//===- DeployCommand.cpp - partita deploy ---------------------------------===//
//
// The options of the run itself stand behind "--" and are those of `run`, read by the
// same parser: a wrong one is told here and not by a cluster.
//
//===----------------------------------------------------------------------===//
#include "Commands.h"

#include "common/CommandLine.h"
#include "common/OutputFile.h"
#include "common/RunCommand.h"
#include "partita/Base/Bundle/Bundle.h"
#include "partita/Base/Files/File.h"
#include "partita/Base/Units.h"
#include "partita/Deploy/Deployment.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

using namespace partita;
using namespace partita::deploy;

namespace {
struct Options {
  std::string bundle, output, kind, image, keys, name, cluster, place;
  bool slurm = false;
  std::vector<std::string> hosts, mounts, words;
  int64_t ranksPerHost = 0, restarts = 3;
  RunCommandLine line; ///< what `words` say
};

} // namespace

/// Paths of `run` that are there where it runs, and not here.
static void expectNoFiles(CLI::App &run) {
  for (const char *name : {"--weights-dir", "--weights-from", "--hostfile"})
    run.get_option(name)->get_validator(0)->active(false);
}

/// Reads the words behind "--" as `run` would.
static Expected<void> readWords(Options &options) {
  for (const char *own : {"--hostfile", "--transport"})
    for (const std::string &word : options.words)
      if (word == own || word.starts_with(std::string(own) + "="))
        return makeError("behind --: " + std::string(own) +
                         " is given by deploy, which places the ranks");
  CLI::App run("", "run");
  addRunOptions(run, "partita run", options.line);
  // Not of partita-run, which has no compiler.
  run.add_flag("--replan")->needs("--elastic");
  expectNoFiles(run);
  std::vector<std::string> words(options.words.rbegin(), options.words.rend());
  words.push_back(options.place);
  try {
    run.parse(words);
  } catch (const CLI::ParseError &wrong) {
    return makeError("behind --: " + std::string(wrong.what()));
  }
  if (!options.line.run.data.checkpoints.folder.empty() && run.count("--restarts") > 0)
    options.restarts = *options.line.run.data.checkpoints.restarts;
  return {};
}

/// Says of a run that trains, and of weights beside the bundle, what pods would find out.
static Expected<void> checkRun(const Options &options, const Bundle &bundle,
                               const Plan &plan) {
  const runtime::RunOptions &run = options.line.run;
  if (!plan.train.empty() && !run.data.files.empty() &&
      run.data.checkpoints.folder.empty())
    return makeError("behind --: training needs --checkpoint-dir, or it would begin anew "
                     "wherever a host is lost");
  if (options.kind.empty())
    return {};
  for (const WeightFile &file : bundle.weightFiles)
    if (file.isOfModel() && run.weights.folder.empty())
      return makeError("the bundle reads '" + file.path +
                       "', which pods do not have: --weights-dir behind -- says where "
                       "they have it, or compile with --copy-weights");
  return {};
}

static Expected<void> checkVolumes(const Options &options, const Deployment &made) {
  const runtime::RunOptions &run = options.line.run;
  for (const auto &[name, path] :
       {std::pair("--checkpoint-dir", run.data.checkpoints.folder),
        {"--log", run.data.log},
        {"--log-dir", run.logDir},
        {"--outputs-dir", run.outputsDir},
        {"--state-dir", run.stateDir},
        {"--trace", options.line.trace}})
    if (!path.empty())
      if (auto ok = checkWritable(made, name, path); !ok)
        return ok;
  return {};
}

/// Host names with their slots, as given: "NAME" or "NAME:SLOTS".
static Expected<void> readHosts(const Options &options, Deployment &made) {
  int64_t slots = 0;
  for (const std::string &word : options.hosts) {
    size_t colon = word.find(':');
    int64_t number = made.slots;
    std::string name = word.substr(0, colon);
    const char *end = word.data() + word.size();
    if (colon != std::string::npos) {
      auto [at, failed] = std::from_chars(word.data() + colon + 1, end, number);
      if (failed != std::errc() || at != end || number < 1 || number > 65536)
        name.clear();
    }
    bool isName = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' ||
             c == '_';
    });
    if (!isName)
      return makeError("--hostfile: expected NAME or NAME:SLOTS, got '" + word + "'");
    for (const NamedHost &other : made.named)
      if (other.name == name)
        return makeError("--hostfile: host '" + name + "' is there twice");
    made.named.push_back({name, number});
    slots += number;
  }
  if (slots < made.ranks && !made.named.empty())
    return makeError("--hostfile: " + countText(made.named.size(), "host") +
                     (made.named.size() == 1 ? " has " : " have ") +
                     countText(static_cast<size_t>(slots), "slot") +
                     ", the bundle needs " + std::to_string(made.ranks));
  return {};
}

/// Finds where ranks go, and what they need there.
static Expected<void> place(const Options &options, const Bundle &bundle,
                            const Plan &plan, Deployment &made) {
  made.ranks = bundle.numRanks();
  made.cpus = std::max<int64_t>(
      options.line.run.threads.value_or(static_cast<int>(bundle.threads)), 1);
  std::optional<Topology> cluster;
  if (!options.cluster.empty()) {
    auto read = readTopologyFile(options.cluster);
    if (!read)
      return tl::unexpected(read.error());
    cluster = std::move(*read);
  }
  auto slots = ranksPerHost(plan.entry(), made.ranks, cluster);
  if (!slots)
    return tl::unexpected(slots.error());
  made.slots = options.ranksPerHost ? std::min(options.ranksPerHost, made.ranks) : *slots;
  if (auto ok = readHosts(options, made); !ok)
    return ok;
  auto memory = memoryOfHost(plan, made.ranksOfHosts(), !made.checkpoints.empty());
  if (!memory)
    return tl::unexpected(memory.error());
  made.memory = *memory;
  return {};
}

/// The bundle whose ranks are placed: of an elastic run the largest world that it allows.
static Expected<std::string> placedBundle(const Options &options) {
  if (!options.line.run.elastic)
    return options.bundle;
  auto worlds = readWorlds(options.bundle);
  if (!worlds)
    return tl::unexpected(worlds.error());
  const auto [least, most] = *options.line.run.elastic;
  std::string numbers;
  for (auto it = worlds->rbegin(); it != worlds->rend(); ++it) {
    if (it->ranks >= least && it->ranks <= most)
      return it->folder;
    numbers.insert(0, std::to_string(it->ranks) + (numbers.empty() ? "" : ", "));
  }
  return makeError("behind --: --elastic " + std::to_string(least) + ".." +
                   std::to_string(most) + ": '" + options.bundle +
                   "' has no world of so many ranks; it has " + numbers);
}

static Expected<Deployment> deploymentOf(const Options &options) {
  auto folder = placedBundle(options);
  if (!folder)
    return tl::unexpected(folder.error());
  auto bundle = readBundle(*folder);
  if (!bundle)
    return tl::unexpected(bundle.error());
  auto file = planFile(*folder, "");
  auto plan = file ? readAnyPlan(*file) : tl::unexpected(file.error());
  if (!plan)
    return tl::unexpected(plan.error());
  if (auto ok = checkRun(options, *bundle, *plan); !ok)
    return tl::unexpected(ok.error());
  const runtime::CheckpointOptions &checkpoints = options.line.run.data.checkpoints;
  Deployment made;
  made.name = options.name;
  made.image = options.image;
  made.keys = options.keys;
  made.checkpoints = checkpoints.folder;
  made.grace = checkpoints.grace;
  made.restarts = options.restarts;
  for (const std::string &text : options.mounts) {
    auto volume = readVolume(text);
    if (!volume)
      return makeError("--mount: " + volume.error().message);
    for (const Volume &other : made.volumes)
      if (other.path == volume->path)
        return makeError("--mount: two claims are to stand at '" + volume->path + "'");
    made.volumes.push_back(std::move(*volume));
  }
  if (!options.kind.empty())
    if (auto ok = checkVolumes(options, made); !ok)
      return tl::unexpected(ok.error());
  made.command = {"partita", "run", options.place};
  made.command.insert(made.command.end(), options.words.begin(), options.words.end());
  auto has = [&](const char *word) {
    return std::find(options.words.begin(), options.words.end(), word) !=
           options.words.end();
  };
  if (!made.checkpoints.empty() && !checkpoints.resume)
    made.command.emplace_back("--resume");
  if (!made.checkpoints.empty() && made.restarts > 0 && !has("--restarts"))
    made.command.insert(made.command.end(),
                        {"--restarts", std::to_string(made.restarts)});
  if (auto ok = place(options, *bundle, *plan, made); !ok)
    return tl::unexpected(ok.error());
  return made;
}

static std::string textOf(const Options &options, const Deployment &made) {
  if (options.kind == "mpijob")
    return mpiJobText(made);
  if (options.kind == "jobset")
    return jobSetText(made);
  if (options.kind == "trainjob")
    return trainJobText(made);
  return options.slurm ? slurmText(made) : hostsText(made);
}

/// Sentence about wrong options of deploy itself; empty: none is wrong.
static std::string refusalOf(Options &options) {
  int kinds = !options.kind.empty() + options.slurm + !options.hosts.empty();
  if (kinds != 1)
    return "deploy needs one of --kubernetes, --slurm and --hostfile";
  if (!options.kind.empty() && options.image.empty())
    return "--kubernetes needs --image: what pods run";
  for (auto [option, isGiven] : {std::pair("--image", !options.image.empty()),
                                 {"--ssh-keys", !options.keys.empty()},
                                 {"--mount", !options.mounts.empty()}})
    if (isGiven && options.kind.empty())
      return std::string(option) + " is of --kubernetes";
  if (options.kind == "jobset" && options.keys.empty())
    return "--kubernetes jobset needs --ssh-keys: the name of a Secret with the keys of "
           "ssh (docs/deploy.md)";
  std::error_code failed;
  std::filesystem::path bundle =
      std::filesystem::absolute(options.bundle, failed).lexically_normal();
  if (!bundle.has_filename())
    bundle = bundle.parent_path();
  if (options.name.empty())
    options.name = nameFrom(bundle.filename().string());
  if (auto ok = checkName(options.name); !ok)
    return ok.error().message + (options.name.empty() ? "; --name gives one" : "");
  if (options.place.empty())
    options.place = options.kind.empty() ? bundle.string() : "/bundle";
  if (options.place[0] != '/')
    return "--bundle-path '" + options.place + "' is no absolute path";
  auto words = readWords(options);
  return words ? std::string() : words.error().message;
}

static int deployRun(Options &options) {
  if (std::string wrong = refusalOf(options); !wrong.empty())
    return fail(wrong, usageStatus);
  auto made = deploymentOf(options);
  if (!made)
    return fail(made.error().message);
  if (auto ok = makeFolderOf(options.output); !ok)
    return fail(ok.error().message);
  if (auto ok = writeFile(options.output, textOf(options, *made)); !ok)
    return fail(ok.error().message);
  const std::vector<int64_t> hosts = made->ranksOfHosts();
  const auto [least, most] = std::ranges::minmax(hosts);
  std::fprintf(stderr, "%s, %s%lld on each of %s, %s and %s a host\n",
               countText(static_cast<size_t>(made->ranks), "rank").c_str(),
               least < most ? "at most " : "", static_cast<long long>(most),
               countText(hosts.size(), "host").c_str(),
               countText(static_cast<size_t>(most * made->cpus), "core").c_str(),
               bytesText(static_cast<double>(made->memory)).c_str());
  return 0;
}

static void addKinds(CLI::App &command, Options &options) {
  command
      .add_option(
          "--kubernetes", options.kind,
          "Manifests of this kind of job: mpijob (Kubeflow's MPI operator), jobset, "
          "trainjob (Kubeflow's trainer)")
      ->check(CLI::IsMember({"mpijob", "jobset", "trainjob"}));
  command.add_flag("--slurm", options.slurm, "A batch script for sbatch");
  command
      .add_option("--hostfile", options.hosts,
                  "A script that starts the run on these hosts over ssh, NAME or "
                  "NAME:SLOTS each")
      ->type_name("HOST")
      ->allow_extra_args(true);
  command.add_option("--image", options.image,
                     "Image of pods, with the commands of Partita (Containerfile)");
  command.add_option(
      "--ssh-keys", options.keys,
      "Secret with ssh-privatekey and ssh-publickey, for jobset; the other "
      "kinds make keys themselves");
  command
      .add_option("--mount", options.mounts,
                  "CLAIM[/SUB/PATH]:/PATH[:ro]: a claim that stands in every pod "
                  "(repeatable)")
      ->type_name("CLAIM:/PATH")
      ->allow_extra_args(false);
}

void partita::addDeployCommand(CLI::App &app, int &status) {
  auto options = std::make_shared<Options>();
  CLI::App *command = app.add_subcommand(
      "deploy", "Write what a cluster needs to run a bundle (docs/deploy.md)");
  command->footer(
      "Examples:\n  partita deploy step --slurm -o step.sh -- --data train.npz --steps "
      "1000 "
      "--checkpoint-dir checkpoints --save-every 10min\n"
      "  partita deploy step --hostfile node1:4 node2:4 -o step.sh -- --inputs-dir in\n"
      "  partita deploy step --kubernetes jobset --image registry/partita --ssh-keys "
      "keys "
      "--mount shared:/shared --bundle-path /shared/step -o step.yaml -- --data "
      "/shared/train.npz --checkpoint-dir /shared/checkpoints --save-every 10min");
  command
      ->add_option("bundle", options->bundle, "The folder that `partita compile` wrote")
      ->required();
  addKinds(*command, *options);
  command->add_option("-o,--output", options->output, "The file to write")->required();
  command->add_option("--name", options->name,
                      "Name of the job (default: made of the bundle's)");
  command->add_option(
      "--bundle-path", options->place,
      "Where hosts and pods have the bundle (default: where it is now; in "
      "pods /bundle)");
  command
      ->add_option("--cluster", options->cluster,
                   "Cluster file, whose innermost level is a host (default: that of the "
                   "plan)")
      ->check(CLI::ExistingFile);
  command
      ->add_option("--ranks-per-host", options->ranksPerHost,
                   "At most so many ranks on a host or pod (default: by the cluster's "
                   "levels)")
      ->check(CLI::Range(int64_t(1), int64_t(65536), "COUNT"));
  command
      ->add_option("--restarts", options->restarts,
                   "How often a run that lost a rank or host is started again")
      ->check(CLI::Range(int64_t(0), int64_t(1000000), "COUNT"))
      ->capture_default_str();
  command->add_option("run", options->words,
                      "Behind --: options of partita run, as hosts and pods see files");
  command->callback([options, &status] { status = deployRun(*options); });
}
