/* Every call of collops_c.h, with uneven and empty blocks; what arrives is compared byte for byte.
 * The rank and the number of ranks are the launcher's. Says "ranks: N" at its end. */
#include <collops_c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 64
#define CHECK(condition)                                                                     \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, collops_last_error());      \
      exit(1);                                                                               \
    }                                                                                        \
  } while (0)
#define OK(call) CHECK((call) == COLLOPS_OK)

static int rank, size;
static collops_comm* comm;

static const int64_t SIZES[][3] = {{2, 0, 5}, {0, 7, 1}, {0, 0, 0}, {3, 3, 3}, {0, 0, 4}};
enum { NUM_SIZES = sizeof(SIZES) / sizeof(SIZES[0]) };

/* Different in every rank and position, and not exact in binary: sums show their order. */
static double value(int of, int64_t i) { return 0.1 * (double)(1 + of * 1000 + 7 * i) + 1e-9; }

static int64_t begin(const int64_t* sizes, int of) {
  int64_t sum = 0;
  int r;
  for (r = 0; r < of; ++r) sum += sizes[r];
  return sum;
}

static void fill(double* x, int64_t count, int of) {
  int64_t i;
  for (i = 0; i < count; ++i) x[i] = value(of, i);
}

/* The result, and what lies behind it untouched. */
static void compare(const double* out, const double* expected, int64_t count) {
  static double poison[MOST];
  memset(poison, 0xAB, sizeof(poison));
  CHECK(memcmp(out, expected, (size_t)count * sizeof(double)) == 0);
  CHECK(memcmp(out + count, poison, (size_t)(MOST - count) * sizeof(double)) == 0);
}

static double sum_of(int64_t i) {
  double sum = value(0, i);
  int r;
  for (r = 1; r < size; ++r) sum += value(r, i);
  return sum;
}

static void gathers_and_scatters(const int64_t* sizes) {
  double x[MOST], out[MOST], expected[MOST];
  const int64_t total = begin(sizes, size), own = sizes[rank], mine = begin(sizes, rank);
  int64_t i;
  int r;

  for (r = 0; r < size; ++r) fill(expected + begin(sizes, r), sizes[r], r);
  fill(x, own, rank);
  memset(out, 0xAB, sizeof(out));
  OK(collops_all_gatherv(comm, own == 0 ? NULL : x, out, sizes, COLLOPS_FLOAT64));
  compare(out, expected, total);
  memset(out, 0xAB, sizeof(out));
  fill(out + mine, own, rank);
  OK(collops_all_gatherv(comm, out + mine, out, sizes, COLLOPS_FLOAT64));
  compare(out, expected, total);
  for (r = 0; r < size; ++r) {
    memset(out, 0xAB, sizeof(out));
    OK(collops_gatherv(comm, x, rank == r ? out : NULL, sizes, COLLOPS_FLOAT64, r));
    compare(out, expected, rank == r ? total : 0);
  }

  fill(x, total, rank);
  for (i = 0; i < own; ++i) expected[i] = sum_of(mine + i);
  memset(out, 0xAB, sizeof(out));
  OK(collops_reduce_scatterv(comm, x, out, sizes, COLLOPS_FLOAT64, COLLOPS_SUM));
  compare(out, expected, own);
  for (r = 0; r < size; ++r) {
    for (i = 0; i < own; ++i) expected[i] = value(r, mine + i);
    memset(out, 0xAB, sizeof(out));
    OK(collops_scatterv(comm, rank == r ? x : NULL, out, sizes, COLLOPS_FLOAT64, r));
    compare(out, expected, own);
  }
}

static int64_t to_each(int from, int to) { return (2 * from + to + 1) % 4; }

static void to_all(void) {
  double x[MOST], out[MOST], expected[MOST];
  int64_t sends[MOST], receives[MOST], other[MOST], i;
  int r, s;
  for (r = 0; r < size; ++r) {
    sends[r] = to_each(rank, r);
    receives[r] = to_each(r, rank);
  }
  for (r = 0; r < size; ++r) {
    for (s = 0; s < size; ++s) other[s] = to_each(r, s);
    for (i = 0; i < receives[r]; ++i) {
      expected[begin(receives, r) + i] = value(r, begin(other, rank) + i);
    }
  }
  fill(x, begin(sends, size), rank);
  memset(out, 0xAB, sizeof(out));
  OK(collops_all_to_allv(comm, x, sends, out, receives, COLLOPS_FLOAT64));
  compare(out, expected, begin(receives, size));
}

static void reductions(int64_t count) {
  double x[MOST], out[MOST], expected[MOST];
  uint8_t bits[MOST], xored[MOST];
  int64_t i;
  int r;
  fill(x, count, rank);
  for (i = 0; i < count; ++i) expected[i] = sum_of(i);
  memset(out, 0xAB, sizeof(out));
  OK(collops_all_reduce(comm, x, out, count, COLLOPS_FLOAT64, COLLOPS_SUM));
  compare(out, expected, count);
  for (r = 0; r < size; ++r) {
    memset(out, 0xAB, sizeof(out));
    OK(collops_reduce(comm, x, rank == r ? out : NULL, count, COLLOPS_FLOAT64, COLLOPS_SUM, r));
    compare(out, expected, rank == r ? count : 0);
  }
  memset(out, 0xAB, sizeof(out));
  fill(out, count, rank);
  OK(collops_all_reduce(comm, out, out, count, COLLOPS_FLOAT64, COLLOPS_MAX));
  fill(expected, count, size - 1);
  compare(out, expected, count);
  for (r = 0; r < size; ++r) {
    memset(out, 0xAB, sizeof(out));
    fill(out, count, rank);
    OK(collops_broadcast(comm, out, count, COLLOPS_FLOAT64, r));
    fill(expected, count, r);
    compare(out, expected, count);
  }
  memset(xored, 0, sizeof(xored));
  for (i = 0; i < count; ++i) {
    bits[i] = (uint8_t)(37 * rank + 11 * i + 5);
    for (r = 0; r < size; ++r) xored[i] ^= (uint8_t)(37 * r + 11 * i + 5);
  }
  OK(collops_all_reduce(comm, bits, bits, count, COLLOPS_UINT8, COLLOPS_BXOR));
  CHECK(memcmp(bits, xored, (size_t)count) == 0);
}

/* Every rank sends to rank 0, with tags that grow; rank 0 takes the last tag first. */
static void messages(void) {
  double x[MOST], out[MOST], expected[MOST];
  int r, source;
  for (r = 1; r < size; ++r) {
    fill(x, r, rank);
    if (rank == r) OK(collops_send(comm, x, r, COLLOPS_FLOAT64, 0, r));
    if (rank != 0) continue;
    memset(out, 0xAB, sizeof(out));
    source = -7;
    OK(collops_recv(comm, out, size - r, COLLOPS_FLOAT64, -1, size - r, &source));
    CHECK(source == size - r);
    fill(expected, size - r, size - r);
    compare(out, expected, size - r);
  }
  if (size == 1) return;
  if (rank == 0) OK(collops_send(comm, NULL, 0, COLLOPS_INT8, 1, 0));
  if (rank == 1) OK(collops_recv(comm, NULL, 0, COLLOPS_INT8, 0, 0, NULL));
}

static void parts(void) {
  collops_comm* part = (collops_comm*)&part;
  int64_t one = 10 + rank, sum = 0;
  int part_rank = -7, part_size = -7;
  OK(collops_split(comm, rank == 0 ? -1 : 4, -rank, &part));
  CHECK((part == NULL) == (rank == 0));
  if (part == NULL) return;
  OK(collops_rank(part, &part_rank));
  OK(collops_size(part, &part_size));
  CHECK(part_size == size - 1 && part_rank == size - 1 - rank);
  OK(collops_all_reduce(part, &one, &sum, 1, COLLOPS_INT64, COLLOPS_SUM));
  CHECK(sum == (size == 2 ? 11 : 23));
  OK(collops_close(part));
  CHECK(collops_barrier(part) == COLLOPS_ERROR_INVALID_PARAM);
}

int main(void) {
  collops_init_options options = COLLOPS_INIT_OPTIONS;
  collops_comm* again = NULL;
  int i;
  CHECK(collops_abi_version() == COLLOPS_ABI_VERSION);
  CHECK(strcmp(collops_last_error(), "") == 0);
  options.comm_domain = "every call";
  options.timeout_s = 60;
  OK(collops_init(&options, &comm));
  OK(collops_init(&options, &again));
  CHECK(again == comm);
  OK(collops_rank(comm, &rank));
  OK(collops_size(comm, &size));
  OK(collops_set_timeout(comm, 50));
  /* Twice: the second time by plans that were kept. */
  for (i = 0; i < 2 * NUM_SIZES; ++i) gathers_and_scatters(SIZES[i % NUM_SIZES]);
  for (i = 0; i < 2; ++i) to_all();
  for (i = 0; i < 8; ++i) reductions(i);
  messages();
  parts();
  OK(collops_barrier(comm));
  OK(collops_close(comm));
  CHECK(collops_barrier(comm) == COLLOPS_ERROR_INVALID_PARAM);
  printf("ranks: %d\n", size);
  return 0;
}
