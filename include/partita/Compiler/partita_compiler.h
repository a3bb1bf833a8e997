/*===- partita_compiler.h - Compile, plan, report from C -----------*- C -*-===*\
|*
|*   char *answer = partita_request(
|*       "{\"command\": \"compile\", \"model\": \"gpt2.onnx\", \"output\":
\"gpt2.bundle\","
|*       " \"mesh\": \"tp=4\", \"hints\": \"megatron\"}", NULL);
|*   … a JSON text: {"result": …} or {"error": {"message": "…", …}} …
|*   partita_release(answer);
|*
|* docs/requests.md lists commands, options and results. In libpartita_compiler.so.
|*
\*===----------------------------------------------------------------------===*/
#ifndef PARTITA_COMPILER_PARTITA_COMPILER_H
#define PARTITA_COMPILER_PARTITA_COMPILER_H

#ifdef __cplusplus
extern "C" {
#endif

/* Carries out one request. `request` is a JSON text in UTF-8. `cancel` may be NULL; once
 * another thread makes the int non-zero (one aligned store), the request ends as soon as
 * it can with the error "cancelled", and leaves no files. Several threads may make
 * requests at once: requests share nothing. The text that is returned is never NULL, and
 * is given to partita_release. */
__attribute__((visibility("default"))) char *partita_request(const char *request,
                                                             const int *cancel);
__attribute__((visibility("default"))) void partita_release(char *text);

#ifdef __cplusplus
}
#endif

#endif /* PARTITA_COMPILER_PARTITA_COMPILER_H */
