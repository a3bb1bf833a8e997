//===- MachineLearning.h - What ai.onnx.ml's operators share ----*- C++ -*-===//
#ifndef PARTITA_PASSES_IMPORT_MACHINELEARNING_H
#define PARTITA_PASSES_IMPORT_MACHINELEARNING_H

#include "passes/Import/Compose.h"

#include <initializer_list>

namespace partita::import {

/// Numbers are those of the attributes.
enum PostTransform { None, Softmax, Logistic, SoftmaxZero, Probit };

/// An attribute that is a tensor, a list of integers, or a list of f32 or a tensor of
/// more precise reals. Empty where there is none.
std::vector<double> tensorAttr(const onnx_model::Node &node, const char *name);
std::vector<double> numbersAttr(const onnx_model::Node &node, const char *name);
std::vector<double> realsAttr(const onnx_model::Node &node, const std::string &name);

/// The position of attribute `name` in `words`, of `absent` where there is none. An error
/// names a word that is not there.
Expected<int64_t> wordAttr(const onnx_model::Node &node, const char *name,
                           std::initializer_list<const char *> words, const char *absent);

/// The type of results that are reals: f32, but where the whole model is read in f64.
mlir::Type realType(Compose &c, const onnx_model::Node &node);
/// Rows of features [rows, features], f64 or f32; a list of features is one row.
mlir::Value features(Compose &c, mlir::Value x);
/// x · weightsᵀ + shift, [rows, targets]: `weights` are [targets, features].
mlir::Value affine(Compose &c, mlir::Value x, const std::vector<double> &weights,
                   const std::vector<double> &shift, int64_t targets);
/// The post_transform of a node; an error names a word that is not known.
Expected<int64_t> postTransform(const onnx_model::Node &node);
/// Scores [rows, targets] behind one.
mlir::Value transformed(Compose &c, mlir::Value y, int64_t how);

/// The integers that a classifier calls its classes; an error where they are strings.
Expected<std::vector<double>> classLabels(const onnx_model::Node &node, const char *name);
/// The labels at these places.
mlir::Value labelled(Compose &c, mlir::Value places, const std::vector<double> &labels);
/// The label of the largest of scores [rows, classes], and the transformed scores. A
/// single score is the second class's, which has the row above `threshold`; of two
/// classes the first has 1 minus that where `isChance`, else the negative.
Expected<Values> classified(Compose &c, mlir::Value y, std::vector<double> labels,
                            int64_t post, double threshold, bool isChance);

void addSupportVectors(HandlerTable &table);
void addTrees(HandlerTable &table);

} // namespace partita::import

#endif // PARTITA_PASSES_IMPORT_MACHINELEARNING_H
