//===- CompilerLibrary.cpp - The C door of libpartita_compiler ------------===//
#include "partita/Compiler/partita_compiler.h"

#include "JsonRequest.h"
#include "partita/Runtime/RunBundle.h"

#include <cstdlib>
#include <cstring>

char *partita_request(const char *request, const int *cancel) {
  // An exception of a library below, as for want of memory, must not end the caller.
  try {
    std::string answer = partita::answerRequest(
        request ? request : "", partita::runtime::runBundle, partita::StopFlag(cancel));
    return ::strdup(answer.c_str());
  } catch (...) {
    return ::strdup("{\"error\":{\"message\":\"the request ended by an exception, for "
                    "want of memory or by a path that the system refuses\"}}");
  }
}

void partita_release(char *text) { ::free(text); }
