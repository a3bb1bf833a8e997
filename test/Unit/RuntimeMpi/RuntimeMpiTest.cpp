//===- RuntimeMpiTest.cpp - Collectives of an MPI job ---------------------===//
//
// Started by mpirun with N ranks: runs the cases of every mesh of N devices. Prints one
// line on rank 0; the exit status is 1 if anything is wrong on any rank.
//
//===----------------------------------------------------------------------===//
#include "../Runtime/CollectiveCases.h"

#include <cstdio>

using namespace partita;

int main() {
  auto transport = runtime::connectMpi();
  if (!transport) {
    std::fprintf(stderr, "%s\n", transport.error().message.c_str());
    return 1;
  }
  size_t calls = 0, wrong = 0;
  for (const char *text : collectives::meshes) {
    Mesh mesh = *Mesh::parse(text);
    if (mesh.numRanks() != (*transport)->size())
      continue;
    auto cases = collectives::casesFor(mesh);
    TaskTable table = collectives::tableOf(mesh, cases);
    auto failures = collectives::runCases(**transport, mesh, cases, table);
    for (const std::string &what : failures)
      std::fprintf(stderr, "wrong: %s\n", what.c_str());
    calls += cases.size();
    wrong += failures.size();
  }
  if ((*transport)->rank() == 0)
    std::printf("mpi collectives: %zu calls on %d ranks, %zu wrong on rank 0\n", calls,
                (*transport)->size(), wrong);
  return calls == 0 || wrong != 0;
}
