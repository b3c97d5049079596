/* What a wrong call of one rank gets, alone in its group: a line for each, "ERROR text". */
#include <collops_c.h>
#include <stdio.h>

static void say(int error) {
  printf("%s %s\n", collops_error_name(error), error == 0 ? "" : collops_last_error());
}

int main(void) {
  collops_init_options options = COLLOPS_INIT_OPTIONS;
  collops_comm *comm = NULL, *other = NULL;
  int own = 0;
  const int64_t sizes[] = {2}, negative[] = {-1}, huge[] = {INT64_MAX};
  const int64_t most = INT64_MAX;
  float x[2] = {0}, out[2];

  say(collops_barrier(NULL));
  say(collops_init(NULL, NULL));
  options.struct_size = 3;
  say(collops_init(&options, &comm));
  options.struct_size = sizeof(options);
  say(collops_init(&options, &comm));
  options.rank = 0;
  say(collops_init(&options, &comm));
  options.rank_size = 0;
  say(collops_init(&options, &comm));
  options.rank = 1;
  options.rank_size = 1;
  say(collops_init(&options, &comm));
  options.rank = 0;
  options.backend = "mpi";
  say(collops_init(&options, &comm));
  options.backend = NULL;
  options.timeout_s = -1;
  say(collops_init(&options, &comm));
  options.timeout_s = 0;
  options.meet_at = "10.0.0.1:1";
  say(collops_init(&options, &comm));
  options.meet_at = NULL;
  options.comm_domain = "0123456789012345678901234567890123456789012345678901234567890123456789"
                        "0123456789012345678901234567890123456789012345678901234567890";
  say(collops_init(&options, &comm));
  options.comm_domain = NULL;
  options.tuning = "size";
  say(collops_init(&options, &comm));
  options.tuning = NULL;
  options.join = "dp";
  say(collops_init(&options, &comm));
  options.join = NULL;
  options.struct_size -= sizeof(options.join); /* as before there was join */
  say(collops_init(&options, &comm));
  options.struct_size = sizeof(options);

  say(collops_all_gatherv(comm, x, out, NULL, COLLOPS_FLOAT32));
  say(collops_all_gatherv(comm, x, out, negative, COLLOPS_FLOAT32));
  say(collops_all_gatherv(comm, x, out, huge, COLLOPS_FLOAT32));
  say(collops_all_gatherv(comm, NULL, out, sizes, COLLOPS_FLOAT32));
  say(collops_all_gatherv(comm, x, NULL, sizes, COLLOPS_FLOAT32));
  say(collops_all_gatherv(comm, x, x + 1, sizes, COLLOPS_FLOAT32));
  say(collops_all_gatherv(comm, x, out, sizes, 5));
  say(collops_all_gatherv(comm, x, out, sizes, -1));
  say(collops_reduce_scatterv(comm, x, out, sizes, COLLOPS_FLOAT32, 8));
  say(collops_reduce_scatterv(comm, x, out, sizes, COLLOPS_FLOAT32, COLLOPS_BAND));
  say(collops_all_to_allv(comm, x, NULL, out, sizes, COLLOPS_FLOAT32));
  say(collops_all_to_allv(comm, x, sizes, out, NULL, COLLOPS_FLOAT32));
  say(collops_gatherv(comm, x, out, sizes, COLLOPS_FLOAT32, 1));
  say(collops_scatterv(comm, x, out, sizes, COLLOPS_FLOAT32, -1));
  say(collops_all_reduce(comm, x, out, -1, COLLOPS_FLOAT32, COLLOPS_SUM));
  say(collops_all_reduce(comm, x, out, most, COLLOPS_FLOAT32, COLLOPS_SUM));
  say(collops_reduce(comm, x, out, 2, COLLOPS_FLOAT32, COLLOPS_SUM, 7));
  say(collops_broadcast(comm, NULL, 2, COLLOPS_FLOAT32, 0));
  say(collops_send(comm, x, 2, COLLOPS_FLOAT32, 0, 0));
  say(collops_send(comm, x, 2, COLLOPS_FLOAT32, 1, 0));
  say(collops_recv(comm, x, 2, COLLOPS_FLOAT32, -1, -2, NULL));
  say(collops_recv(comm, x, -1, COLLOPS_FLOAT32, -1, 0, NULL));
  say(collops_recv(comm, NULL, 2, COLLOPS_FLOAT32, -1, 0, NULL));
  say(collops_split(comm, 0, 0, NULL));
  say(collops_shrink(comm, NULL, 0, 0, NULL));
  say(collops_shrink(comm, NULL, 0, -1, &other));
  say(collops_shrink(comm, NULL, -1, 0, &other));
  say(collops_shrink(comm, NULL, 2, 0, &other));
  say(collops_shrink(comm, &own, 1, 0, &other));
  say(collops_old_ranks(comm, NULL));
  say(collops_old_ranks(comm, &own));
  say(collops_grow(comm, 1, 0, NULL));
  say(collops_grow(comm, 1, -1, &other));
  say(collops_grow(comm, 0, 0, &other));
  say(collops_set_timeout(comm, 0));
  say(collops_rank(comm, NULL));
  say(collops_size(comm, NULL));

  say(collops_all_gatherv(comm, x, out, sizes, COLLOPS_FLOAT32)); /* none of these ended it */
  say(collops_abort(comm, NULL));
  say(collops_barrier(comm));
  say(collops_close(comm));
  say(collops_close(comm));
  return 0;
}
