//===- CompilerLibrary.cpp - The C door of libpartita_compiler ------------===//
#include "partita/Compiler/partita_compiler.h"

#include "partita/Runtime/RunBundle.h"
#include "passes/Pipelines/Request.h"

#include <cstdlib>
#include <cstring>

char *partita_request(const char *request, const int *cancel) {
  std::string answer = partita::answerRequest(
      request ? request : "", partita::runtime::runBundle, partita::StopFlag(cancel));
  return ::strdup(answer.c_str());
}

void partita_release(char *text) { ::free(text); }
