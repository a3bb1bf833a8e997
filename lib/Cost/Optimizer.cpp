//===- Optimizer.cpp - The update of the parameters -----------------------===//
#include "partita/Cost/Optimizer.h"

#include "partita/Cost/Compute.h"

using namespace partita;

int partita::stateValues(OptimizerKind kind) {
  switch (kind) {
  case OptimizerKind::Sgd:
    return 0;
  case OptimizerKind::Momentum:
  case OptimizerKind::Adagrad:
    return 1;
  case OptimizerKind::Adam:
  case OptimizerKind::AdamW:
  case OptimizerKind::Lamb:
    return 2;
  }
  return 0;
}

static bool hasMaster(DType type) { return byteWidth(type) < byteWidth(DType::F32); }

TrainingMemory partita::trainingMemory(OptimizerKind kind, DType type,
                                       double parameters) {
  auto width = static_cast<double>(byteWidth(type));
  double states = stateValues(kind) + (hasMaster(type) ? 1 : 0);
  return {width * parameters, width * parameters, 4 * states * parameters};
}

double partita::updateBytes(OptimizerKind kind, DType type, double parameters) {
  TrainingMemory memory = trainingMemory(kind, type, parameters);
  // Without a master copy the weights are read and written, with one only written.
  double weights = hasMaster(type) ? memory.weights : 2 * memory.weights;
  double bytes = memory.gradients + 2 * memory.optimizer + weights;
  // The first pass of LAMB reads everything to form the update's norm.
  if (kind == OptimizerKind::Lamb)
    bytes += memory.gradients + memory.optimizer + (hasMaster(type) ? 0 : memory.weights);
  return bytes;
}

double partita::updateSeconds(const Device &device, OptimizerKind kind, DType type,
                              double parameters) {
  double launches = kind == OptimizerKind::Lamb ? 2 : 1;
  return streamSeconds(device, updateBytes(kind, type, parameters)) +
         launches * device.launch;
}
