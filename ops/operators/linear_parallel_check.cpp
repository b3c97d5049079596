#include "operators/linear_parallel_check.h"

namespace collops {
namespace {

constexpr const char* kOp = "LinearParallel";

using P = LinearParallelParam;

// Experts and quantisation are known by ATB's names and do not exist here.
Status CheckType(const P& param) {
  const int type = static_cast<int>(param.type);
  CHECK_ARG(
      param.type != P::ALLTOALLVC_ALL_GATHER_GMM && param.type != P::GMM_REDUCE_SCATTER_ALLTOALLVC,
      ERROR_INVALID_PARAM, kOp, ": type ", type, " (", Name(param.type),
      ") multiplies for a mixture of experts, which is not supported: use types 0 to 4");
  CHECK_ARG(type >= P::LINEAR_ALL_REDUCE && type <= P::ALL_GATHER_LINEAR_REDUCE_SCATTER,
            ERROR_INVALID_PARAM, kOp, ": type must be in [0, 4], got ", type);
  return Ok();
}

const char* NameOf(P::QuantType type) {
  constexpr const char* kNames[] = {"QUANT_TYPE_PER_TENSOR", "QUANT_TYPE_PER_CHANNEL",
                                    "QUANT_TYPE_PER_GROUP", "QUANT_TYPE_PER_TOKEN"};
  const bool known = type >= P::QUANT_TYPE_PER_TENSOR && type < P::QUANT_TYPE_MAX;
  return known ? kNames[static_cast<int>(type)] : "unknown";
}

Status CheckNotQuantised(const P& param) {
  CHECK_ARG(param.quantType == P::QUANT_TYPE_UNQUANT, ERROR_INVALID_PARAM, kOp, ": quantType ",
            static_cast<int>(param.quantType), " (", NameOf(param.quantType),
            ") asks for a quantised product, which is not supported: leave it at -1 ",
            "(QUANT_TYPE_UNQUANT)");
  return Ok();
}

Status CheckGridReserved(const P::TwoDimTPInfo& info) {
  for (int i = 0; i < 3; ++i) {
    CHECK_ARG(info.rsv[i] == 0, ERROR_INVALID_PARAM, kOp, ": twoDimTPInfo.rsv[", i,
              "] is reserved, it must be 0, got ", static_cast<int>(info.rsv[i]));
  }
  return Ok();
}

// What ATB's mc2 takes is less than what runs it here.
Status CheckMc2(const P& param) {
  if (param.backend != "mc2") return Ok();
  constexpr const char* kElse = "; another backend, such as \"hccl\", does";
  CHECK_ARG(!param.hasResidual, ERROR_INVALID_PARAM, kOp, ": backend \"mc2\" takes no hasResidual",
            kElse);
  CHECK_ARG(param.commMode == COMM_MULTI_THREAD, ERROR_INVALID_PARAM, kOp,
            ": backend \"mc2\" takes no commMode but 1 (COMM_MULTI_THREAD), got ",
            static_cast<int>(param.commMode), kElse);
  CHECK_ARG(param.quantType == P::QUANT_TYPE_UNQUANT, ERROR_INVALID_PARAM, kOp,
            ": backend \"mc2\" takes no quantType, got ", static_cast<int>(param.quantType));
  CHECK_ARG(param.type == P::LINEAR_REDUCE_SCATTER, ERROR_INVALID_PARAM, kOp,
            ": backend \"mc2\" takes no type but 1 (LINEAR_REDUCE_SCATTER), got ",
            static_cast<int>(param.type), kElse);
  return Ok();
}

Status CheckWeightShape(bool trans_weight, int64_t k, const Shape& weight) {
  const int num_dims = weight.num_dims;
  CHECK_ARG(num_dims == 2 || weight[0] == 1, ERROR_INVALID_TENSOR_DIM, kOp,
            ": a weight of 3 dims must have 1 matrix in dim 0, got ", weight[0]);
  const int64_t got = weight[trans_weight ? num_dims - 1 : num_dims - 2];
  CHECK_ARG(got == k, ERROR_INVALID_TENSOR_DIM, kOp, ": x has k = ", k, " columns but weight ",
            ToString(weight), " has ", got, trans_weight ? " columns" : " rows",
            "; with transWeight ", trans_weight ? "true it is [n, k]" : "false it is [k, n]");
  return Ok();
}

Status CheckResidualShape(int64_t n, const Shape& residual) {
  const bool is_row = residual.num_dims == 1 || residual[0] == 1;
  CHECK_ARG(is_row && residual[residual.num_dims - 1] == n, ERROR_INVALID_TENSOR_DIM, kOp,
            ": residual must be [", n, "] or [1, ", n, "], got ", ToString(residual));
  return Ok();
}

}  // namespace

Status CheckLinearKind(const P& param) {
  RETURN_IF_ERROR(CheckGridReserved(param.twoDimTPInfo));
  RETURN_IF_ERROR(CheckMc2(param));
  RETURN_IF_ERROR(CheckType(param));
  RETURN_IF_ERROR(CheckNotQuantised(param));
  CHECK_ARG(!param.keepIntermediate || param.type == P::ALL_GATHER_LINEAR, ERROR_INVALID_PARAM, kOp,
            ": keepIntermediate needs type 2 (ALL_GATHER_LINEAR), got type ",
            static_cast<int>(param.type), " (", Name(param.type), ")");
  return Ok();
}

Status CheckLinearShapes(const P& param, const std::vector<TensorDesc>& inputs) {
  constexpr int64_t kLeastMc2K = 256;
  constexpr int64_t kMc2K = 65535;
  const Shape& x = inputs[0].shape;
  const Shape& weight = inputs[1].shape;
  const int64_t k = x[x.num_dims - 1];
  RETURN_IF_ERROR(CheckWeightShape(param.transWeight, k, weight));
  CHECK_ARG(param.backend != "mc2" || (k >= kLeastMc2K && k < kMc2K), ERROR_INVALID_TENSOR_DIM, kOp,
            ": backend \"mc2\" takes k in [", kLeastMc2K, ", ", kMc2K, "), got ", k);
  if (!param.hasResidual) return Ok();
  const int64_t n = weight[param.transWeight ? weight.num_dims - 2 : weight.num_dims - 1];
  return CheckResidualShape(n, inputs[2].shape);
}

}  // namespace collops
