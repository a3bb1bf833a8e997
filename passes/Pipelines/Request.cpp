//===- Request.cpp - What a person asks of the compiler -------------------===//
#include "passes/Pipelines/Request.h"

#include "partita/Base/Files/File.h"

using namespace partita;

Expected<Training> partita::readTraining(const std::string &file) {
  auto text = readFile(file);
  if (!text)
    return tl::unexpected(text.error());
  return train::parseSpec(*text, file).map([&](train::Spec spec) {
    return Training{file, std::move(*text), std::move(spec)};
  });
}

Expected<std::vector<Mesh>> partita::readMeshes(const std::string &text) {
  std::vector<Mesh> meshes;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(';', begin), text.size());
    auto mesh = Mesh::parse(std::string_view(text).substr(begin, end - begin));
    if (!mesh)
      return tl::unexpected(mesh.error());
    if (mesh->axes().empty() && text.find(';') != std::string::npos)
      return makeError("--mesh \"" + text + "\": the mesh of stage " +
                       std::to_string(meshes.size()) +
                       " is empty; an axis of size 1 is one rank");
    meshes.push_back(std::move(*mesh));
    begin = end + 1;
  }
  return meshes;
}

std::string partita::str(const std::vector<Mesh> &meshes) {
  std::string text;
  for (const Mesh &mesh : meshes)
    text += (text.empty() ? "" : ";") + mesh.str();
  return text;
}

Expected<void> partita::readSchedule(const std::string &text, Cut &cut) {
  if (auto known = stepScheduleOf(text)) {
    cut.schedule = known;
    return {};
  }
  if (!text.ends_with(".csv"))
    return makeError("there is no schedule '" + text + "': expected " +
                     stepScheduleNames() + " or a file FILE.csv");
  return readFile(text)
      .and_then([&](const std::string &content) { return readStepText(content, text); })
      .map([&](PipelineStep order) { cut.order = std::move(order); });
}
