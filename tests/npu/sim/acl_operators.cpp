// Operators that torch_npu runs by their name, as it does with those for which it finds no aclnn
// function. None is simulated, so each is refused: an answer of 0 would leave the outputs
// unwritten.
#include <string>

#include "acl.h"

namespace {

constexpr int kOperatorNotFound = 100024;

int Refuse(const char* name) {
  const std::string known = name == nullptr ? "(null)" : name;
  return collops_sim::Refuse(kOperatorNotFound, "the operator " + known + " is not simulated");
}

}  // namespace

extern "C" {

int aclopCompileAndExecute(const char* name) {
  return Refuse(name);
}
int aclopCompileAndExecuteV2(const char* name) {
  return Refuse(name);
}

}  // extern "C"
