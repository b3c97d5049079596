#pragma once

// ATB's C++ names on a CPU. A program written for ATB includes this in place of <acl/acl.h> and
// <atb/...>, and runs with COLLOPS_BACKEND=shm in its environment: docs/from_atb.md.
//
//   atb::infer::AllGatherVParam param;         operators/atb/params.h
//   atb::CreateOperation(param, &operation);   operators/atb/operation.h
//   operation->Setup(pack, size, context);     operators/atb/types.h
//   aclrtMalloc(&data, bytes, policy);         operators/atb/acl.h

#if __cplusplus < 201703L
#error "collops needs C++17: -std=c++17"
#endif

#include "collops/operators/atb/acl.h"
#include "collops/operators/atb/operation.h"
#include "collops/operators/atb/params.h"
#include "collops/operators/atb/types.h"

// An alias: this library has no symbols of libatb.
namespace atb = ::collops::atb;
