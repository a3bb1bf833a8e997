//===- PlanRecord.h - Members of plans, by name -----------------*- C++ -*-===//
//
// The parts of a plan that stand in two places, in plan.json and as attributes of its L2
// module. See Files/JsonRecord.h.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_BASE_BUNDLE_PLANRECORD_H
#define PARTITA_BASE_BUNDLE_PLANRECORD_H

#include "partita/Base/Bundle/Plan.h"
#include "partita/Base/Files/JsonRecord.h"

namespace partita {

template <typename Io> void visit(Io &io, As<Io, PlanCertificate::Rates> &it) {
  io.optional("flops_per_second_per_device", it.flopsPerDevice);
  io.optional("model_flops_utilization", it.utilization);
  io.optional("samples_per_second", it.samples);
  io.optional("tokens_per_second", it.tokens);
}

template <typename Io> void visit(Io &io, As<Io, PlanCertificate::Reserve> &it) {
  io.member("context", it.context);
  io.member("communicators", it.communicators);
  io.member("fragmentation", it.fragmentation);
}

template <typename Io> void visit(Io &io, As<Io, PlanCertificate::Level> &it) {
  io.member("name", it.name);
  io.member("size", it.size);
}

template <typename Io> void visit(Io &io, As<Io, PlanCertificate> &it) {
  io.member("step_seconds", it.stepSeconds);
  io.optional("request_seconds", it.requestSeconds);
  io.member("lower_bound_seconds", it.bound.seconds);
  io.optional("bound_within", it.bound.within);
  io.optional("bound_ignores", it.bound.ignores);
  io.member("gap", it.gap);
  io.member("proved", it.proved);
  io.member("memory_per_device", it.memoryPerDevice);
  io.optional("memory_limit", it.memoryLimit);
  io.optional("memory_reserve", it.memoryReserve);
  io.member("communication_bytes", it.communicationBytes);
  visit(io, it.rates);
  if (io.isThere("overlapped_seconds", it.overlapped.has_value())) {
    if constexpr (Io::reads)
      it.overlapped.emplace();
    io.member("overlapped_seconds", it.overlapped->seconds);
    io.member("overlapped_lower_bound_seconds", it.overlapped->lowerBoundSeconds);
  }
  io.optional("search_seconds", it.searchSeconds);
  io.optional("device", it.device);
  if (io.isThere("levels", !it.levels.empty()))
    io.member("levels", it.levels);
}

template <typename Io> void visit(Io &io, As<Io, PlanRecompute> &it) {
  io.member("nodes", it.nodes);
  io.optional("exactly", it.exactly);
  io.member("seconds", it.seconds);
  io.member("saved_bytes", it.savedBytes);
}

template <typename Io> void visit(Io &io, As<Io, PlanLinks::Level> &it) {
  io.member("name", it.name);
  io.member("size", it.size);
  io.member("bandwidth", it.bandwidth);
  io.member("latency", it.latency);
  io.optional("ramp", it.ramp);
  io.optional("shares_memory", it.sharesMemory);
}

template <typename Io> void visit(Io &io, As<Io, PlanLinks> &it) {
  io.optional("launch", it.launch);
  io.member("levels", it.levels);
}

template <typename Io> void visit(Io &io, As<Io, PlanCalls> &it) {
  io.optional("in_flight", it.inFlight);
  io.optional("reuse", it.reuse);
  io.optional("buckets", it.makesBuckets, true);
  io.optional("all_to_all", it.allToAll, true);
  io.optional("hierarchical", it.hierarchical);
}

template <typename Io> void visit(Io &io, As<Io, PlanFacts> &it) {
  io.member("mode", it.mode);
  io.optional("hints", it.hints);
  io.member("notes", it.notes);
  io.optional("target", it.target, std::string("cpu"));
  io.optional("target_cpu", it.targetCpu);
  io.optional("threads", it.threads, int64_t(1));
  io.optional("compute", it.compute, std::string("f32"));
  io.optional("keep_f32", it.keepF32);
  io.optional("accuracy_level", it.accuracyLevel);
  io.optional("recompute", it.recompute);
  io.optional("accumulation", it.accumulation);
  if (io.isThere("communication", it.calls != PlanCalls()))
    io.member("communication", it.calls);
}

} // namespace partita

#endif // PARTITA_BASE_BUNDLE_PLANRECORD_H
