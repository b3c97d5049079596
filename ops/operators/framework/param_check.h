#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include "comm/communicator.h"
#include "core/status.h"
#include "operators/framework/backend_names.h"

namespace collops {

// What every parameter struct says of its group; a view, valid as long as the struct.
struct GroupFields {
  int rank;
  int default_rank;  // the struct's, where nothing was set
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

// What the check of a struct begins with, in ATB's order: reserved bytes, backend, rankSize.
// `names`: a sum of BackendNames.
Status CheckGroup(const char* operation, const GroupFields& group, unsigned names);

// What it ends with: commMode, commDomain, rankTableFile, rank, rankRoot.
Status CheckDistributed(const char* operation, const GroupFields& group);

// rank or rankRoot outside [0, rank_size). `source` tells where a rank comes from that the struct
// did not say, else it is empty.
Status CheckRank(const char* operation, int rank, int rank_size, const std::string& source);
Status CheckRankRoot(const char* operation, int rank_root, int rank_size);

// reduceType, of the operators that ATB's lccl runs too: it has no prod.
Status CheckReduceType(const char* operation, const char* field, const std::string& reduce_type,
                       const std::string& backend);

// The peer of a message is another rank of the group.
Status CheckPeer(const char* operation, const char* field, int64_t peer, int rank, int rank_size);

}  // namespace collops
