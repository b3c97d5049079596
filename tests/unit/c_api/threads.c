/* Ranks that are threads of this program; a communicator and an error text for each. */
#include <collops_c.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 3 };
static int errors[RANKS], wrong[RANKS];

static void* work(void* number) {
  const int rank = *(const int*)number;
  collops_init_options options = COLLOPS_INIT_OPTIONS;
  const int64_t sizes[RANKS] = {1, 0, 2};
  const int64_t expected[3] = {100, 102, 202};
  int64_t x[2], out[3] = {-1, -1, -1};
  char text[100];
  collops_comm* comm = NULL;
  int i;
  options.rank = rank;
  options.rank_size = RANKS;
  options.threads = 1;
  options.comm_domain = "threads";
  errors[rank] = collops_init(&options, &comm);
  if (errors[rank] != 0) return NULL;
  for (i = 0; i < 2; ++i) x[i] = 100 * (i + 1) + rank;
  errors[rank] = collops_all_gatherv(comm, x, out, sizes, COLLOPS_INT64);
  wrong[rank] = memcmp(out, expected, sizeof(out)) != 0;
  /* All are wrong in their own way, at once. */
  wrong[rank] += collops_send(comm, x, 1, COLLOPS_INT64, 10 + rank, 0) == 0;
  snprintf(text, sizeof(text), "send: to must be in [0, 3), got %d", 10 + rank);
  wrong[rank] += strcmp(collops_last_error(), text) != 0;
  if (errors[rank] == 0) errors[rank] = collops_close(comm);
  return NULL;
}

int main(void) {
  pthread_t threads[RANKS];
  int numbers[RANKS], r, failed = 0;
  for (r = 0; r < RANKS; ++r) {
    numbers[r] = r;
    if (pthread_create(&threads[r], NULL, work, &numbers[r]) != 0) return 2;
  }
  for (r = 0; r < RANKS; ++r) {
    pthread_join(threads[r], NULL);
    printf("%d %d\n", errors[r], wrong[r]);
    failed += errors[r] != 0 || wrong[r] != 0;
  }
  return failed;
}
