//===- MergeStep.h - The files of a training step's ranks -------*- C++ -*-===//
//
// A training step of several stages has a file for each rank, which is all that the rank
// does in one step (docs/rank-files.md). Nodes `Send` and `Receive` go forward and back
// between groups of ranks, so that no group is a stage that values only enter and leave.
// All groups together are one program: each rank of a mesh does what every group does.
//
//===----------------------------------------------------------------------===//
#ifndef PARTITA_ONNX_MERGESTEP_H
#define PARTITA_ONNX_MERGESTEP_H

#include "partita/Base/Error.h"
#include "partita/Base/Layout/Mesh.h"
#include "partita/Onnx/Model.h"

#include <vector>

namespace partita::onnx_model {

/// Tells whether the name of the graph says that the model is a rank's file of a training
/// step of several stages (StagePlace::isGroup).
bool isOfStep(const Model &model);

/// Makes one program, for all ranks of `mesh`, of the files of all ranks of all groups,
/// in any order. Axes of a group's mesh are axes of `mesh`; over others all ranks do the
/// same. What one group sends is what the others read: a Send is its input, and a Receive
/// stays, with that as its input, so that import compares type and shape. States, inputs
/// and outputs are those of all groups together; names inside that repeat get others.
/// Nodes come in an order in which the groups can run.
///
/// An error names the file that is missing or there twice; the axis that the mesh does
/// not have; the node that sends what nobody receives, receives what nobody sends, sends
/// or receives a value again or in a loop or a branch, names other ranks than those, or
/// talks to ranks by their numbers where the group has another mesh; all nodes at which
/// groups wait for each other for ever; an input of two types, an output that two groups
/// give, or groups that say other inputs and outputs of the step.
Expected<Model> mergeStep(std::vector<Model> files, const Mesh &mesh);

} // namespace partita::onnx_model

#endif // PARTITA_ONNX_MERGESTEP_H
