//===- Calls.cpp - Engine calls, each prepared once -----------------------===//
#include "partita/Runtime/Engine.h"

using namespace partita;
using namespace partita::engine;

size_t Call::weightOperand(TaskKind kind) {
  return kind == TaskKind::MatMul        ? static_cast<size_t>(task::MatMulB)
         : kind == TaskKind::BlockMatMul ? static_cast<size_t>(task::BlockMatMulB)
                                         : static_cast<size_t>(task::ConvWeights);
}

Expected<std::shared_ptr<const Call>> Calls::find(const task::Params &params,
                                                  const WeightForm *form) {
  Key key{task::bytesOf(params), form ? *form : WeightForm{}};
  auto found = calls.find(key);
  if (found != calls.end())
    return found->second;
  auto made = engine.create(params, form);
  if (made)
    calls.emplace(std::move(key), *made);
  return made;
}

Expected<std::shared_ptr<const Call>> Calls::get(const task::Params &params,
                                                 const std::string &weight) {
  // Held while the engine generates code: another thread would only generate the same.
  std::lock_guard guard(lock);
  auto call = find(params, nullptr);
  if (!call || (*call)->sizes().packed == 0)
    return call;
  const WeightForm &liked = (*call)->form();
  auto [fixed, fresh] = forms.try_emplace({weight, liked.stored}, liked);
  if (fresh || fixed->second == liked)
    return call;
  auto same = find(params, &fixed->second);
  return same ? same : call;
}

size_t Calls::size() const {
  std::lock_guard guard(lock);
  return calls.size();
}
