//===- LoadTest.cpp - placeholder ----------===//
#include "partita/Onnx/Load.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
using namespace partita;
TEST_CASE("try") {
  onnx_model::LoadOptions o;
  if (auto *s = std::getenv("S")) { std::string t = s; size_t p=0; while(p<t.size()){size_t q=t.find(' ',p); if(q==t.npos)q=t.size(); o.shapes.push_back(*onnx_model::parseShapeBinding(t.substr(p,q-p))); p=q+1;} }
  auto m = onnx_model::loadModel(std::getenv("M"), o);
  if (!m) { std::cout << m.error().message << "\n"; return; }
  std::cout << m->graph.nodes.size() << " nodes " << m->graph.initializers.size() << " init\n";
  std::map<std::string,int> c; for (auto&n: m->graph.nodes) c[n.opType]++;
  for (auto&[k,v]:c) std::cout << k << " " << v << ", "; std::cout << "\n";
  if (std::getenv("V")) for (auto&n: m->graph.nodes) { std::cout << n.name << " <" << n.origin << "> " << n.opType << n.sinceVersion << "("; for (auto&i:n.inputs) std::cout << i << ", "; std::cout << ")\n"; }
}
