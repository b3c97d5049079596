#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collops/comm/communicator.h"
#include "collops/core/operation.h"
#include "collops/core/status.h"
#include "collops/core/tensor.h"

namespace [[gnu::visibility("default")]] collops {

// ATB's parameter structs (atb/infer_op_params.h) stand in operators/<operator>/param.h, each with
// a table of its fields in param.cpp: names, order and defaults are ATB's. `hcclComm` is a
// caller-owned communicator of the backend that runs; `rsv` bytes must be zero. Every one of them
// has the functions below, and CheckParam beside it, which checks the struct by itself, in ATB's
// order. A rank of -1 passes CheckParam: it is determined later.

template <typename Param>
using IfParam = decltype(Param::commDomain);

// Checks the struct, picks the backend and begins first contact; waits for no other rank.
template <typename Param, typename = IfParam<Param>>
[[gnu::visibility("default")]] Status CreateOperation(const Param& param,
                                                      std::unique_ptr<Operation>* operation);

// The outputs for inputs, or ERROR_* for shapes and dtypes that the operator does not support;
// needs no communicator, and no address. rankSize may be 0.
template <typename Param, typename = IfParam<Param>>
[[gnu::visibility("default")]] Status InferShape(const Param& param, int rank_size,
                                                 const std::vector<TensorDesc>& inputs,
                                                 std::vector<TensorDesc>* outputs);

// Whether all fields are equal.
template <typename Param, typename = IfParam<Param>>
[[gnu::visibility("default")]] bool operator==(const Param& a, const Param& b);

// JSON with ATB's camelCase keys and numbers for enums. `hcclComm` is never written. When reading,
// every key is optional, and an unknown one is ERROR_INVALID_PARAM, which names it.
template <typename Param>
[[gnu::visibility("default")]] std::string ToJson(const Param& param);
template <typename Param>
[[gnu::visibility("default")]] Status FromJson(const std::string& text, Param* param);

}  // namespace collops
