#pragma once

// The public C++ interface: everything that is installed, in one include.
//
//   AllGatherVParam param;                      operators/params.h: ATB's structs
//   std::unique_ptr<Operation> operation;       core/operation.h: the two phases
//   CreateOperation(param, &operation);
//   operation->GetWorkspaceSize(pack, &bytes);
//   operation->Execute(pack, workspace, bytes, nullptr);
//
// Every function returns a Status (core/status.h). Communicators can also be used without a struct:
// Registry::Instance().Get(spec, &communicator) (comm/registry.h, comm/communicator.h).

#if __cplusplus < 201703L
#error "collops needs C++17: -std=c++17"
#endif

#include "collops/comm/call.h"
#include "collops/comm/communicator.h"
#include "collops/comm/registry.h"
#include "collops/comm/window.h"
#include "collops/core/dtype.h"
#include "collops/core/operation.h"
#include "collops/core/prepackable.h"
#include "collops/core/status.h"
#include "collops/core/tensor.h"
#include "collops/core/trace/log.h"
#include "collops/core/trace/recording.h"
#include "collops/operators/params.h"
