//===- JsonRequest.h - Commands as JSON requests ----------------*- C++ -*-===//
//
// The door for other languages: one text in, one text out (docs/requests.md). The options
// are those of the commands and have their names.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_TOOLS_COMPILERLIBRARY_JSONREQUEST_H
#define PARTITA_TOOLS_COMPILERLIBRARY_JSONREQUEST_H

#include "partita/Base/Stop.h"
#include "passes/Pipelines/RunBundle.h"

#include <string>
#include <string_view>

namespace partita {

/// Carries out {"command": "compile" | "plan" | "report" | "inspect" | "verify",
/// options…}. Returns {"result": …} or {"error": {"message", and where they are known
/// "node", "dim", "hint"}} as JSON text. `run` starts the ranks of a bundle for "verify".
/// Once `stop` is raised the request ends with the error "cancelled". Requests share
/// nothing, and may be carried out at the same time.
std::string answerRequest(std::string_view request, const BundleRunner &run,
                          StopFlag stop = {});

} // namespace partita

#endif // PARTITA_TOOLS_COMPILERLIBRARY_JSONREQUEST_H
