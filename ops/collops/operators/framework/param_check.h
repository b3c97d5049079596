#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collops/core/dtype.h"
#include "collops/core/env.h"
#include "collops/core/status.h"
#include "collops/operators/params.h"

namespace collops {

// The names that a struct's `backend` may have: a sum of these flags.
enum BackendNames : unsigned {
  kEngineNames = 1,  // engines: hccl, nccl, cuda, shm, ucx
  kLcclName = 2,     // lccl: ATB's own collective kernels
  kMatrixNames = 4,  // lcoc, mc2: ATB's kernels that also multiply matrices
  kLcclToo = kEngineNames | kLcclName,
  kAllNames = kEngineNames | kLcclName | kMatrixNames,
};

// ERROR_INVALID_PARAM for a name that `allowed` does not include; the message lists them.
Status CheckBackendName(const char* operation, const std::string& name, unsigned allowed);

// All names that any operator's struct may have as `backend`.
std::vector<std::string> KnownBackendNames();

// The engine for a struct with backend `name`: COLLOPS_BACKEND may replace it, and a name of ATB's
// kernels (lccl, lcoc, mc2) runs on the engine of "hccl". ERROR_INVALID_PARAM if COLLOPS_BACKEND
// has an unknown name on either side, which would otherwise go unnoticed.
Status ResolveBackend(const char* operation, const Env& env, const std::string& name,
                      std::string* backend);

// The first part of a struct's check, in ATB's order: reserved bytes, backend, rankSize. `names`: a
// sum of BackendNames.
Status CheckReserved(const char* operation, const char* field, const uint8_t* bytes, size_t size);
Status CheckBackendAndSize(const char* operation, const GroupParam& group, unsigned names);
template <typename Param>
Status CheckGroup(const char* operation, const Param& param, unsigned names) {
  COLLOPS_RETURN_IF_ERROR(CheckReserved(operation, "rsv", param.rsv, sizeof(param.rsv)));
  return CheckBackendAndSize(operation, param, names);
}

// The last part of it: commMode, commDomain, rankTableFile, rank, rankRoot.
Status CheckDistributed(const char* operation, const GroupParam& group);

// ERROR_COMM_EMPTY, in ATB an error of the second phase, if commDomain is a number that its lccl
// does not have. Other words than numbers are this library's own.
Status CheckDomainNumber(const char* operation, const GroupParam& group);

// An error if rank or rankRoot is outside [0, rank_size). `source`: where the rank comes from, if
// not from the struct; else empty.
Status CheckRank(const char* operation, int rank, int rank_size, const std::string& source);
Status CheckRankRoot(const char* operation, int rank_root, int rank_size);

// Checks reduceType of the operators that ATB's lccl also runs: lccl has no prod.
Status CheckReduceType(const char* operation, const char* field, const std::string& reduce_type,
                       const std::string& backend);

// Checks that a message's peer is another rank of the group.
Status CheckPeer(const char* operation, const char* field, int64_t peer, int rank, int rank_size);

// The reduction that a struct names; sum for a name that the struct's check refuses.
ReduceOp ReduceOpOf(const std::string& name);

// Refuses the pairs of op and dtype that ATB refuses on the struct's `backend`: hccl has no prod of
// int16 and bfloat16, lccl no int64. Other backends take all pairs.
Status CheckAtbPair(const char* operation, const std::string& backend, ReduceOp op, DType dtype);

}  // namespace collops
