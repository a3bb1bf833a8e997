//===- Printable.cpp - Messages that quote a broken file ------------------===//
#include "Internal.h"

#include <algorithm>

using namespace partita;

/// The bytes of the UTF-8 sequence at the front of `text`, 0 if it is none.
static size_t sequenceLength(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned lead = byte(0);
  if (lead < 0x80)
    return 1;
  size_t length = lead >= 0xc2 && lead <= 0xdf   ? 2
                  : lead >= 0xe0 && lead <= 0xef ? 3
                  : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                 : 0;
  if (length == 0 || length > text.size())
    return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80)
      return 0;
  // Overlong forms, surrogates, and what is beyond the last code point.
  bool isValid = !(lead == 0xe0 && byte(1) < 0xa0) && !(lead == 0xed && byte(1) > 0x9f) &&
                 !(lead == 0xf0 && byte(1) < 0x90) && !(lead == 0xf4 && byte(1) > 0x8f);
  return isValid ? length : 0;
}

std::string onnx_model::printable(std::string_view text) {
  constexpr size_t longest = 1000;
  std::string result;
  while (!text.empty() && result.size() < longest) {
    auto lead = static_cast<unsigned char>(text[0]);
    size_t length = sequenceLength(text);
    if (length == 0 || lead < 0x20 || lead == 0x7f) {
      static constexpr char digits[] = "0123456789abcdef";
      result += {'\\', 'x', digits[lead >> 4], digits[lead & 15]};
      length = 1;
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return text.empty() ? result : result + "…";
}
