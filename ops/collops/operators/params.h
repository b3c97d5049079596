#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/communicator.h"
#include "collops/core/dtype.h"
#include "collops/core/operation.h"
#include "collops/core/status.h"
#include "collops/core/tensor.h"

namespace [[gnu::visibility("default")]] collops {

// ATB's parameter structs (atb/infer_op_params.h): names, types and defaults are ATB's. Each
// operator's .cpp has its struct's check, and the table of its fields in ATB's order. A rank of -1
// passes the check: it is determined later.

// The fields that all of them have, besides `rsv`.
struct GroupParam {
  int rank = 0;  // -1: from hcclComm, the rank table or the launcher
  int rankSize = 0;
  int rankRoot = 0;
  std::string backend = "hccl";
  void* hcclComm = nullptr;  // a caller-owned communicator of the backend that runs
  CommMode commMode = COMM_MULTI_PROCESS;
  std::string rankTableFile;
  std::string commDomain;
};

struct AllGatherParam : GroupParam {
  uint8_t rsv[64] = {};  // reserved, here and below: must be zero
};

struct AllGatherVParam : GroupParam {
  AllGatherVParam() { rank = -1; }
  uint8_t rsv[64] = {};
};

struct AllReduceParam : GroupParam {
  // ATB's numbers, which differ from LinearParallelParam's.
  enum QuantType : int {
    QUANT_TYPE_UNQUANT = 0,
    QUANT_TYPE_UNDEFINED = 0,
    QUANT_TYPE_PER_TENSOR = 1,
    QUANT_TYPE_PER_CHANNEL = 2,
    QUANT_TYPE_MAX = 3,
  };
  std::string allReduceType = "sum";
  QuantType quantType = QUANT_TYPE_UNQUANT;
  DType outDataType = DType::kUndefined;  // as in ATB, read only if the call is quantised
  uint8_t rsv[64] = {};
};

struct AllToAllParam : GroupParam {
  bool transpose = false;
  uint8_t rsv[62] = {};
};

struct AllToAllVParam : GroupParam {
  std::vector<int64_t> sendCounts;  // elements for each rank
  std::vector<int64_t> sdispls;     // where they begin in x
  std::vector<int64_t> recvCounts;  // elements from each rank
  std::vector<int64_t> rdispls;     // where they begin in the output
  uint8_t rsv[64] = {};
};

// As AllToAllVParam, with counts and displacements as input tensors.
struct AllToAllVV2Param : GroupParam {
  AllToAllVV2Param() { rank = -1; }
  uint8_t rsv[64] = {};
};

struct BroadcastParam : GroupParam {
  uint8_t rsv[64] = {};
};

struct RecvParam : GroupParam {
  uint32_t srcRank = 1;  // the sender
  uint8_t rsv[64] = {};
};

struct ReduceScatterParam : GroupParam {
  ReduceScatterParam() { backend = "lccl"; }
  std::string reduceType = "sum";
  uint8_t rsv[64] = {};
};

struct ReduceScatterVParam : GroupParam {
  std::vector<int64_t> sendCounts;  // as in ATB; not used: the input tensors are
  std::vector<int64_t> sdispls;
  int64_t recvCount = 0;
  std::string reduceType = "sum";
  uint8_t rsv[64] = {};
};

struct SendParam : GroupParam {
  uint32_t destRank = 1;  // the receiver
  uint8_t rsv[64] = {};
};

// What follows `rsv` is not in ATB's struct.
struct LinearParallelParam : GroupParam {
  // The collectives around the product.
  enum ParallelType : int {
    UNDEFINED = -1,
    LINEAR_ALL_REDUCE = 0,
    LINEAR_REDUCE_SCATTER = 1,
    ALL_GATHER_LINEAR = 2,
    PURE_LINEAR = 3,
    ALL_GATHER_LINEAR_REDUCE_SCATTER = 4,
    ALLTOALLVC_ALL_GATHER_GMM = 5,
    GMM_REDUCE_SCATTER_ALLTOALLVC = 6,
    MAX = 7,
  };

  enum QuantType : int {
    QUANT_TYPE_UNDEFINED = -1,
    QUANT_TYPE_UNQUANT = -1,
    QUANT_TYPE_PER_TENSOR = 0,
    QUANT_TYPE_PER_CHANNEL = 1,
    QUANT_TYPE_PER_GROUP = 2,
    QUANT_TYPE_PER_TOKEN = 3,
    QUANT_TYPE_MAX = 4,
  };

  // The grid of ALL_GATHER_LINEAR_REDUCE_SCATTER: agDim * rsDim ranks.
  struct TwoDimTPInfo {
    uint16_t agDim = 0;
    uint16_t rsDim = 0;
    uint8_t innerDimIsAg = 1;  // which axis has neighbouring ranks
    uint8_t rsv[3] = {};
  };

  // Of the two types with experts: epSize places of tpSize ranks, with localExpertNums experts
  // each.
  struct MoeInfo {
    int16_t localExpertNums = 1;
    int8_t epSize = 1;
    int8_t tpSize = 1;
  };

  bool transWeight = true;  // the weight is [n, k], else [k, n]
  bool hasResidual = false;
  ParallelType type = LINEAR_ALL_REDUCE;
  bool keepIntermediate = false;
  QuantType quantType = QUANT_TYPE_UNQUANT;
  int32_t quantGroupSize = 0;
  DType outDataType = DType::kUndefined;
  TwoDimTPInfo twoDimTPInfo;
  MoeInfo moeInfo;
  uint8_t rsv[52] = {};

  // Rows of x on each member of this rank's group that gathers, and rows of the output on each
  // member of its group that scatters. Empty: even, as in ATB.
  std::vector<int64_t> gatherRows;
  std::vector<int64_t> scatterRows;

  // Not 0: the sum over the inner dimension of all members of the group that scatters is cut in so
  // many leaves, and its bits do not depend on the number of ranks. sumColumns: columns of x on
  // each of these members; empty: the leaves are shared out evenly, and are equally long.
  int32_t sumLeaves = 0;
  std::vector<int64_t> sumColumns;
};

bool operator==(const LinearParallelParam::TwoDimTPInfo& a,
                const LinearParallelParam::TwoDimTPInfo& b);
bool operator==(const LinearParallelParam::MoeInfo& a, const LinearParallelParam::MoeInfo& b);

// "ALL_GATHER_LINEAR"; "MAX" for a number that is none of them.
const char* Name(LinearParallelParam::ParallelType type);

// Checks the struct by itself, in ATB's order.
Status CheckParam(const AllGatherParam& param);
Status CheckParam(const AllGatherVParam& param);
Status CheckParam(const AllReduceParam& param);
Status CheckParam(const AllToAllParam& param);
Status CheckParam(const AllToAllVParam& param);
Status CheckParam(const AllToAllVV2Param& param);
Status CheckParam(const BroadcastParam& param);
Status CheckParam(const LinearParallelParam& param);
Status CheckParam(const RecvParam& param);
Status CheckParam(const ReduceScatterParam& param);
Status CheckParam(const ReduceScatterVParam& param);
Status CheckParam(const SendParam& param);

// Checks the fields that depend on the group: with the struct's rank and rankSize if set, and again
// with the communicator's. The peer is another rank; a list has a number per rank.
Status CheckRanks(const AllToAllVParam& param, int rank, int rank_size);
Status CheckRanks(const LinearParallelParam& param, int rank, int rank_size);
Status CheckRanks(const RecvParam& param, int rank, int rank_size);
Status CheckRanks(const SendParam& param, int rank, int rank_size);

// The functions below, of one struct: compiled in its operator's .cpp.
template <typename Param>
struct ParamFunctions {
  static Status CreateOperation(const Param& param, std::unique_ptr<Operation>* operation);
  static Status InferShape(const Param& param, int rank_size, const std::vector<TensorDesc>& inputs,
                           std::vector<TensorDesc>* outputs);
  static bool Equal(const Param& a, const Param& b);
  static std::string ToJson(const Param& param);
  static Status FromJson(const std::string& text, Param* param);
};

// Whether it is one of the structs above.
template <typename Param>
using IfParam = decltype(Param::commDomain);

// Checks the struct, picks the backend and begins first contact; waits for no other rank.
template <typename Param, typename = IfParam<Param>>
Status CreateOperation(const Param& param, std::unique_ptr<Operation>* operation) {
  return ParamFunctions<Param>::CreateOperation(param, operation);
}

// The outputs for inputs, or ERROR_* for shapes and dtypes that the operator does not support;
// needs no communicator, and no address. rankSize may be 0.
template <typename Param, typename = IfParam<Param>>
Status InferShape(const Param& param, int rank_size, const std::vector<TensorDesc>& inputs,
                  std::vector<TensorDesc>* outputs) {
  return ParamFunctions<Param>::InferShape(param, rank_size, inputs, outputs);
}

// Whether all fields are equal.
template <typename Param, typename = IfParam<Param>>
bool operator==(const Param& a, const Param& b) {
  return ParamFunctions<Param>::Equal(a, b);
}

// JSON with ATB's camelCase keys and numbers for enums. `hcclComm` is never written. When reading,
// every key is optional, and an unknown one is ERROR_INVALID_PARAM, which names it.
template <typename Param>
std::string ToJson(const Param& param) {
  return ParamFunctions<Param>::ToJson(param);
}
template <typename Param>
Status FromJson(const std::string& text, Param* param) {
  return ParamFunctions<Param>::FromJson(text, param);
}

// Settings of an operation besides its struct.
struct OperationOptions {
  // LinearParallel's engine, equal on every rank: "local", "windows" or "pipeline"; empty: the
  // first one that can run. GetWorkspaceSize refuses a named engine that cannot run.
  std::string engine;
  // LinearParallel divides its sums by the number of ranks that are added.
  bool averages = false;
};

// ERROR_INVALID_PARAM for an unknown engine, and for an option that the operator does not have.
Status CreateOperation(const LinearParallelParam& param, const OperationOptions& options,
                       std::unique_ptr<Operation>* operation);
template <typename Param>
Status CreateOperation(const Param& param, const OperationOptions& options,
                       std::unique_ptr<Operation>* operation) {
  COLLOPS_CHECK_ARG(options.engine.empty(), ERROR_INVALID_PARAM, "Operation: engine \"",
                    options.engine,
                    "\" cannot be chosen: LinearParallel is the only operator with engines");
  COLLOPS_CHECK_ARG(!options.averages, ERROR_INVALID_PARAM,
                    "Operation: averages is for LinearParallel alone; set the struct's reduceType");
  return CreateOperation(param, operation);
}

// ATB's UpdateOperationParam: replaces an operation's struct by another one of the same type. An
// equal domain keeps its communicator, so there is no first contact; all plans are dropped. On an
// error the operation does not change.
template <typename Param>
Status UpdateOperation(const Param& param, std::unique_ptr<Operation>* operation) {
  std::unique_ptr<Operation> updated;
  COLLOPS_RETURN_IF_ERROR(CreateOperation(param, &updated));
  COLLOPS_CHECK_ARG(std::string((*operation)->Name()) == updated->Name(), ERROR_INVALID_PARAM,
                    updated->Name(), ": cannot update an operation named ", (*operation)->Name());
  *operation = std::move(updated);
  return Ok();
}

// For LinearParallel: the options stay; if only the rows change, neither the weight is packed again
// nor a communicator made.
Status UpdateOperation(const LinearParallelParam& param, std::unique_ptr<Operation>* operation);

}  // namespace collops
