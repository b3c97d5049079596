// What holds of every struct: each field counts, and JSON keeps it.
#pragma once

#include <string>

#include "check.h"
#include "collops/operators/params.h"

namespace structs {

// The struct with one field changed is another one, and JSON keeps the change.
template <typename Param, typename Change>
void Matters(Change change, bool in_json = true) {
  Param changed;
  change(changed);
  EXPECT_TRUE(!(changed == Param()));
  EXPECT_TRUE(changed == changed);
  Param read;
  const collops::Status status = FromJson(ToJson(changed), &read);
  ExpectStatus(status, in_json ? collops::NO_ERROR : collops::ERROR_INVALID_PARAM,
               in_json ? "" : "rsv");
  if (in_json) EXPECT_TRUE(read == changed);
}

template <typename Param>
void CommonFieldsCount() {
  Matters<Param>([](Param& p) { p.rank = 1; });
  Matters<Param>([](Param& p) { p.rankSize = 2; });
  Matters<Param>([](Param& p) { p.rankRoot = 1; });
  Matters<Param>([](Param& p) { p.backend = "shm"; });
  Matters<Param>([](Param& p) { p.commMode = collops::COMM_MULTI_THREAD; });
  Matters<Param>([](Param& p) { p.rankTableFile = "table.json"; });
  Matters<Param>([](Param& p) { p.commDomain = "dp"; });
  Matters<Param>([](Param& p) { p.rsv[63] = 1; }, false);
  Param with_handle;
  with_handle.hcclComm = &with_handle;
  EXPECT_TRUE(!(with_handle == Param()));
  Param read;
  ExpectStatus(FromJson(R"({"rankSise": 2})", &read), collops::ERROR_INVALID_PARAM, "rankSise");
}

// A struct of two ranks; one with more fields that are needed specialises this.
template <typename Param>
Param Right() {
  Param param;
  param.rankSize = 2;
  param.backend = "shm";
  return param;
}

}  // namespace structs
