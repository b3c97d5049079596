#pragma once

#include <string>

#include "core/status.h"
#include "core/tensor.h"
#include "operators/even_params.h"
#include "operators/exchange_params.h"
#include "operators/linear_parallel/param.h"
#include "operators/message_params.h"
#include "operators/params.h"

namespace collops {

// The creation line of the contract's table: whether a struct is one that an operator takes, judged
// by the struct alone, in ATB's order. A rank of -1 passes: who says the rank is found later.
Status CheckParam(const AllGatherVParam& param);
Status CheckParam(const ReduceScatterVParam& param);
Status CheckParam(const LinearParallelParam& param);
Status CheckParam(const AllGatherParam& param);
Status CheckParam(const ReduceScatterParam& param);
Status CheckParam(const AllReduceParam& param);
Status CheckParam(const BroadcastParam& param);
Status CheckParam(const SendParam& param);
Status CheckParam(const RecvParam& param);
Status CheckParam(const AllToAllParam& param);
Status CheckParam(const AllToAllVParam& param);
Status CheckParam(const AllToAllVV2Param& param);

// The four lists have a number for every rank. Part of CheckParam where rankSize says how many.
Status CheckLists(const AllToAllVParam& param, int rank_size);

// rank or rankRoot outside [0, rank_size). `source` tells where a rank comes from that the struct
// did not say, else it is empty.
Status CheckRank(const char* operation, int rank, int rank_size, const std::string& source);
Status CheckRankRoot(const char* operation, int rank_root, int rank_size);

// Whether the name is an engine that can run these operators, here or elsewhere.
bool IsEngine(const std::string& backend);

}  // namespace collops
