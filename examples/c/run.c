/* Runs a bundle once on zeros and prints the size of every output.
 *
 *   cc run.c -o run $(pkg-config --cflags --libs partita-runtime)
 *   ./run BUNDLE
 */
#include <partita/Runtime/partita_runtime.h>

#include <stdio.h>
#include <stdlib.h>

static int fail(const partita_session *session) {
  fprintf(stderr, "error: %s\n", partita_error(session));
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: run BUNDLE\n");
    return 2;
  }
  partita_session *session = partita_load(argv[1], NULL);
  if (!session)
    return fail(NULL);
  partita_tensor_info info;
  for (size_t i = 0; partita_input_info(session, i, &info) == 0; ++i)
    if (partita_bind_input(session, info.name, calloc(1, info.bytes + 1), info.bytes))
      return fail(session);
  for (size_t i = 0; partita_output_info(session, i, &info) == 0; ++i)
    if (partita_bind_output(session, info.name, calloc(1, info.bytes + 1), info.bytes))
      return fail(session);
  if (partita_run(session))
    return fail(session);
  for (size_t i = 0; partita_output_info(session, i, &info) == 0; ++i)
    printf("%s: %s, %zu bytes\n", info.name, info.dtype, info.bytes);
  partita_free(session);
  return 0;
}
