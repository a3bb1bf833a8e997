//===- OldMpi.cpp - A libpartita_mpi.so of another build ------------------===//
//
// As it was before the two sides said what they know of each other. What it gives is no
// transport of today's; whoever uses it crashes.
//
//===----------------------------------------------------------------------===//
extern "C" void *partita_mpi_create() {
  static void *nothing[4] = {};
  return nothing;
}
