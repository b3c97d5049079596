/* The C interface of collops: uneven collectives over memory of the CPU. C99, no C++ types, no
 * Python. docs/c_api.md says how to compile and link a program.
 *
 * Every function returns 0, or the number of an error whose text collops_last_error() has; those
 * that return something else say so. A wrong argument is such an error, and the other ranks of the
 * call get its text. Counts and sizes are in elements. Blocks of ranks lie one after the other.
 *
 * One thread at a time may make a call of a communicator; collops_abort() and collops_close() may
 * be called from any thread. A call waits for the other ranks, at most the communicator's time-out.
 */
#ifndef COLLOPS_C_H_
#define COLLOPS_C_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define COLLOPS_C_API __attribute__((visibility("default")))
#else
#define COLLOPS_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. Functions, numbers, and fields at the end of structs may be added to a version;
 * whatever would break a compiled program makes a new one, whose symbols have another version. */
#define COLLOPS_ABI_VERSION 1
/* Of the library that is loaded. */
COLLOPS_C_API int collops_abi_version(void);

/* What was wrong with this thread's last call that failed, in UTF-8; "" if none has. Valid until
 * the thread's next call that fails. */
COLLOPS_C_API const char* collops_last_error(void);
/* The name of an error, such as "ERROR_TIMEOUT". */
COLLOPS_C_API const char* collops_error_name(int error);

/* The errors on which programs act; docs/errors.md has all of them. */
enum {
  COLLOPS_OK = 0,
  COLLOPS_ERROR_INVALID_PARAM = 1,
  COLLOPS_ERROR_TIMEOUT = 100,       /* a rank did not come in time */
  COLLOPS_ERROR_PEER_LOST = 101,     /* a rank has died or left */
  COLLOPS_ERROR_RANK_MISMATCH = 102, /* the ranks' calls disagree, or a rank refused its own */
  COLLOPS_ERROR_UNSUPPORTED = 103,
  COLLOPS_ERROR_ABORTED = 104
};

/* Element types; the numbers are aclDataType's. */
typedef int32_t collops_dtype;
enum {
  COLLOPS_FLOAT32 = 0,
  COLLOPS_FLOAT16 = 1,
  COLLOPS_INT8 = 2,
  COLLOPS_INT32 = 3,
  COLLOPS_UINT8 = 4,
  COLLOPS_INT16 = 6,
  COLLOPS_UINT16 = 7,
  COLLOPS_UINT32 = 8,
  COLLOPS_INT64 = 9,
  COLLOPS_UINT64 = 10,
  COLLOPS_FLOAT64 = 11,
  COLLOPS_BOOL = 12, /* a byte, 0 or 1 */
  COLLOPS_COMPLEX64 = 16,
  COLLOPS_COMPLEX128 = 17,
  COLLOPS_BFLOAT16 = 27
};

/* Reductions, in the order of the ranks: the same bits on all of them. */
typedef int32_t collops_op;
enum {
  COLLOPS_SUM = 0,
  COLLOPS_PROD = 1,
  COLLOPS_MAX = 2,
  COLLOPS_MIN = 3,
  COLLOPS_AVG = 4,
  COLLOPS_BAND = 5,
  COLLOPS_BOR = 6,
  COLLOPS_BXOR = 7
};

/* A group of ranks. The pointer is the number that Communicator.handle is in Python. */
typedef struct collops_comm collops_comm;

/* The arguments of collops.init() in Python. */
typedef struct collops_init_options {
  size_t struct_size;      /* sizeof(collops_init_options) */
  int rank;                /* -1: what the launcher says */
  int rank_size;           /* -1: likewise */
  const char* backend;     /* NULL: shm, or ucx if the ranks are on several hosts */
  const char* comm_domain; /* NULL: "" */
  double timeout_s;        /* 0: COLLOPS_TIMEOUT_S, or 300 */
  int threads;             /* not 0: the ranks are threads of this process */
  const char* job_id;      /* NULL: the launcher's job */
  const char* meet_at;     /* NULL: the ranks of job_id are on one host */
  const char* tuning;      /* NULL: COLLOPS_TUNING */
  const char* join;        /* the comm_domain of a group that grows, which this process joins */
} collops_init_options;
/* Every option left out: collops_init_options options = COLLOPS_INIT_OPTIONS; */
#define COLLOPS_INIT_OPTIONS \
  {sizeof(collops_init_options), -1, -1, NULL, NULL, 0.0, 0, NULL, NULL, NULL, NULL}

/* Connects the ranks of a group, and waits for all of them. NULL: no options. The communicator
 * lives until collops_close() or the end of the process. */
COLLOPS_C_API int collops_init(const collops_init_options* options, collops_comm** comm);
/* Makes a communicator of the ranks with the same color, numbered by key and then by rank; all
 * ranks call it. A rank with a color below 0 joins none, and gets NULL. */
COLLOPS_C_API int collops_split(collops_comm* comm, int color, int key, collops_comm** part);
/* After a loss, a time-out or an abort: makes a communicator of the ranks that are left, in their
 * old order, which all call it. `exclude`: the num_excluded ranks that are to go too, the same on
 * all that stay. timeout_s: how long ranks that do not come are waited for, 0: the communicator's
 * time-out. `comm` has ended then, and is to be closed. */
COLLOPS_C_API int collops_shrink(collops_comm* comm, const int* exclude, int num_excluded,
                                 double timeout_s, collops_comm** shrunk);
/* The rank that each rank of a communicator of collops_shrink() had before; ranks: its size. */
COLLOPS_C_API int collops_old_ranks(const collops_comm* comm, int* ranks);
/* Makes a communicator with `count` more ranks, which are new processes whose option `join` is the
 * comm_domain; all ranks call it. timeout_s: as above. `comm` has ended then, and is to be closed;
 * after a time-out it is as it was. */
COLLOPS_C_API int collops_grow(collops_comm* comm, int count, double timeout_s,
                               collops_comm** grown);
/* Leaves the group, and ends the communicator. */
COLLOPS_C_API int collops_close(collops_comm* comm);
/* Ends every call of every rank, with ERROR_ABORTED and this reason. */
COLLOPS_C_API int collops_abort(collops_comm* comm, const char* reason);

COLLOPS_C_API int collops_rank(const collops_comm* comm, int* rank);
COLLOPS_C_API int collops_size(const collops_comm* comm, int* size);
/* How long the calls after this one wait for other ranks. */
COLLOPS_C_API int collops_set_timeout(collops_comm* comm, double seconds);

/* `sizes` has the block of every rank, the same on all ranks; 0 is a size. An array of no elements
 * may be NULL. No array overlaps another one, unless a function says that it may. */

/* x: sizes[rank]; out: the sum of sizes, in which x may be this rank's block. */
COLLOPS_C_API int collops_all_gatherv(collops_comm* comm, const void* x, void* out,
                                      const int64_t* sizes, collops_dtype dtype);
/* x: the sum of sizes; out: sizes[rank], and may be this rank's block of x. */
COLLOPS_C_API int collops_reduce_scatterv(collops_comm* comm, const void* x, void* out,
                                          const int64_t* sizes, collops_dtype dtype, collops_op op);
/* x: the sum of send_sizes, for each rank in turn; out: the sum of recv_sizes, from each rank. */
COLLOPS_C_API int collops_all_to_allv(collops_comm* comm, const void* x, const int64_t* send_sizes,
                                      void* out, const int64_t* recv_sizes, collops_dtype dtype);
/* x: sizes[rank]; out: the sum of sizes on the root, not used on other ranks. */
COLLOPS_C_API int collops_gatherv(collops_comm* comm, const void* x, void* out,
                                  const int64_t* sizes, collops_dtype dtype, int root);
/* x: the sum of sizes on the root, not used on other ranks; out: sizes[rank]. */
COLLOPS_C_API int collops_scatterv(collops_comm* comm, const void* x, void* out,
                                   const int64_t* sizes, collops_dtype dtype, int root);
/* x and out: count; out may be x. */
COLLOPS_C_API int collops_all_reduce(collops_comm* comm, const void* x, void* out, int64_t count,
                                     collops_dtype dtype, collops_op op);
/* x: count; out: count on the root, not used on other ranks. */
COLLOPS_C_API int collops_reduce(collops_comm* comm, const void* x, void* out, int64_t count,
                                 collops_dtype dtype, collops_op op, int root);
/* data: count; read on the root, written on the others. */
COLLOPS_C_API int collops_broadcast(collops_comm* comm, void* data, int64_t count,
                                    collops_dtype dtype, int root);
COLLOPS_C_API int collops_barrier(collops_comm* comm);

/* One message; send and recv of two ranks match by tag (at least 0), in their order, and agree on
 * count and dtype. from -1: any rank. source: gets the sender; may be NULL. */
COLLOPS_C_API int collops_send(collops_comm* comm, const void* x, int64_t count,
                               collops_dtype dtype, int to, int tag);
COLLOPS_C_API int collops_recv(collops_comm* comm, void* out, int64_t count, collops_dtype dtype,
                               int from, int tag, int* source);

#ifdef __cplusplus
}
#endif

#endif
