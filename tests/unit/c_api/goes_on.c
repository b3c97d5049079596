/* Of ranks 0, 1 and 2 rank 1 leaves; the others shrink their group, and process 3 joins it. */
#include <collops_c.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int line, int holds) {
  if (holds) return;
  fprintf(stderr, "line %d: %s\n", line, collops_last_error());
  exit(1);
}
#define CHECK(holds) check(__LINE__, (holds))
#define OK(call) CHECK((call) == 0)

int main(void) {
  collops_init_options options = COLLOPS_INIT_OPTIONS;
  collops_comm *comm = NULL, *left = NULL;
  const int process = atoi(getenv("COLLOPS_RANK"));
  int64_t own = 10 + process, sum = 0;
  int old_ranks[2] = {-1, -1}, rank = -1, size = -1;
  options.timeout_s = 60;
  if (process == 3) {
    options.join = "goes on";
    OK(collops_init(&options, &comm));
  } else {
    options.comm_domain = "goes on";
    options.rank = process;
    options.rank_size = 3;
    OK(collops_init(&options, &comm));
    if (process == 1) return collops_close(comm);
    CHECK(collops_all_reduce(comm, &own, &sum, 1, COLLOPS_INT64, COLLOPS_SUM) ==
          COLLOPS_ERROR_PEER_LOST);
    OK(collops_shrink(comm, NULL, 0, 0, &left));
    OK(collops_old_ranks(left, old_ranks));
    CHECK(old_ranks[0] == 0 && old_ranks[1] == 2);
    OK(collops_all_reduce(left, &own, &sum, 1, COLLOPS_INT64, COLLOPS_SUM));
    CHECK(sum == 22);
    OK(collops_close(comm));
    OK(collops_grow(left, 1, 0, &comm));
    OK(collops_close(left));
  }
  OK(collops_all_reduce(comm, &own, &sum, 1, COLLOPS_INT64, COLLOPS_SUM));
  CHECK(sum == 35);
  OK(collops_rank(comm, &rank));
  OK(collops_size(comm, &size));
  printf("%d of %d\n", rank, size);
  return collops_close(comm);
}
