#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include "collops/comm/communicator.h"
#include "collops/core/status.h"
#include "collops/operators/framework/backend_names.h"

namespace collops {

// The fields of a parameter struct that describe its group; a view, valid as long as the struct.
struct GroupFields {
  int rank;
  int default_rank;  // the struct's default
  int rank_size;
  int rank_root;
  const std::string& backend;
  void* hccl_comm;
  CommMode comm_mode;
  const std::string& rank_table_file;
  const std::string& comm_domain;
  const uint8_t* rsv;
  size_t rsv_size;
};

template <typename Param>
GroupFields GroupOf(const Param& p) {
  return {p.rank,     Param().rank,    p.rankSize,   p.rankRoot, p.backend,       p.hcclComm,
          p.commMode, p.rankTableFile, p.commDomain, p.rsv,      std::size(p.rsv)};
}

// The first part of a struct's check, in ATB's order: reserved bytes, backend, rankSize. `names`: a
// sum of BackendNames.
Status CheckGroup(const char* operation, const GroupFields& group, unsigned names);

// The last part of it: commMode, commDomain, rankTableFile, rank, rankRoot.
Status CheckDistributed(const char* operation, const GroupFields& group);

// An error if rank or rankRoot is outside [0, rank_size). `source`: where the rank comes from, if
// not from the struct; else empty.
Status CheckRank(const char* operation, int rank, int rank_size, const std::string& source);
Status CheckRankRoot(const char* operation, int rank_root, int rank_size);

// Checks reduceType of the operators that ATB's lccl also runs: lccl has no prod.
Status CheckReduceType(const char* operation, const char* field, const std::string& reduce_type,
                       const std::string& backend);

// Checks that a message's peer is another rank of the group.
Status CheckPeer(const char* operation, const char* field, int64_t peer, int rank, int rank_size);

}  // namespace collops
