//===- Entries.h - One bundle for several input shapes ----------*- C++ -*-===//
#ifndef PARTITA_PASSES_PIPELINES_ENTRIES_H
#define PARTITA_PASSES_PIPELINES_ENTRIES_H

#include "passes/Pipelines/Compiler.h"

namespace partita {

/// The shapes of one entry of a bundle.
struct EntryShapes {
  std::string name;
  std::vector<onnx_model::ShapeBinding> shapes; ///< each name once
};

/// The entries that are asked for by shapes of one name given several times: the k-th of
/// each such name is for entry k, those that are given once are for all. Entries are
/// called by what differs, "sequence=32"; a single one is "main". An error if names are
/// given unequally often, or two entries are equal.
Expected<std::vector<EntryShapes>>
entriesOf(const std::vector<onnx_model::ShapeBinding> &shapes);

/// Makes a plan that is followed that of one entry: of these shapes, else of this name. A
/// plan of one entry is any entry's. An evaluation's stays behind it. An error lists the
/// plan's entries.
Expected<void> takeEntry(Request &request, const EntryShapes &entry);

/// Compiles the entry that evaluates beside a step that has come as far as it is to, and
/// writes the bundle of both. States lie as the step has them, and stages of a pipeline
/// are where its are. A plan without the entry
/// leaves its strategies open.
Expected<void> addEvaluation(const Job &job, Compiler &step, bool isStaged);

/// Compiles every entry, with an evaluation beside each where a training step asks for
/// it, and writes one bundle. States lie as the first entry has them.
Expected<CompileReport> compileEntries(const std::vector<EntryShapes> &entries, Job job);

} // namespace partita

#endif // PARTITA_PASSES_PIPELINES_ENTRIES_H
