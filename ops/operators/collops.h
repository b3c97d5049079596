#pragma once

// The public C++ interface: everything that is installed, in one include.
//
//   AllGatherVParam param;                      operators/*/param.h: ATB's structs
//   std::unique_ptr<Operation> operation;       core/operation.h: the two phases
//   CreateOperation(param, &operation);         operators/create_operation.h
//   operation->GetWorkspaceSize(pack, &bytes);
//   operation->Execute(pack, workspace, bytes, nullptr);
//
// Every function returns a Status (core/status.h). Communicators can also be used without a struct:
// Registry::Instance().Get(spec, &communicator) (comm/registry.h, comm/communicator.h).

#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/registry.h"
#include "comm/window.h"
#include "core/dtype.h"
#include "core/operation.h"
#include "core/prepackable.h"
#include "core/status.h"
#include "core/tensor.h"
#include "core/trace/log.h"
#include "core/trace/recording.h"
#include "operators/create_operation.h"
