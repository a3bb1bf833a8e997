//===- Read.h - Reading problems from IOPDDL JSON files ---------*- C++ -*-===//
#ifndef PARTITA_SOLVER_READ_H
#define PARTITA_SOLVER_READ_H

#include "partita/Solver/Problem.h"

namespace partita::solver {

/// Reads a problem in the JSON format of the ASPLOS 2025 contest on intra-operator
/// parallelism, plain or compressed by gzip:
///   {"problem": {"name": …,
///     "nodes": {"intervals": [[begin, end], …], "costs": [[…], …], "usages": [[…], …]},
///     "edges": {"nodes": [[u, v], …], "costs": [[…], …]}, "usage_limit": …}}
/// and, beyond that format, the optional member
///     "classes": [{"copies": [[node, …], …], "runs": 1}, …]
/// of "problem"; "runs" may be left out.
/// "-" is standard input. The result passes `check`. Every error is one sentence that
/// names the file and the place in it.
Expected<Problem> readProblem(const std::string &path);

/// The same from a text in memory; `file` is only used in messages.
Expected<Problem> parseProblem(std::string_view text, const std::string &file);

} // namespace partita::solver

#endif // PARTITA_SOLVER_READ_H
