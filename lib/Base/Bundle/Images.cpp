//===- Images.cpp - In which order images lie in memory -------------------===//
#include "partita/Base/Bundle/Images.h"

using namespace partita;

std::vector<size_t> task::imageOrder(int64_t format, size_t rank) {
  std::vector<size_t> order;
  for (size_t d = 0; d < rank; ++d)
    if (d != 1 || format == PARTITA_FORMAT_CHANNELS_FIRST)
      order.push_back(d);
  if (format == PARTITA_FORMAT_CHANNELS_LAST)
    order.push_back(1);
  return order;
}
