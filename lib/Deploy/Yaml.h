//===- Yaml.h - Documents of YAML -------------------------------*- C++ -*-===//
#ifndef PARTITA_LIB_DEPLOY_YAML_H
#define PARTITA_LIB_DEPLOY_YAML_H

#include <nlohmann/json.hpp>

#include <string>

namespace partita::deploy {

/// A document in block style: members in their order, a text of several lines as it is.
/// Readers of YAML 1.1 and 1.2 read back the same types: a text that looks like a number,
/// a word for true or null, or a date is quoted.
std::string yamlText(const nlohmann::ordered_json &document);

} // namespace partita::deploy

#endif // PARTITA_LIB_DEPLOY_YAML_H
