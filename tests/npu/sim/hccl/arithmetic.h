#pragma once

#include <cstddef>
#include <cstdint>

// HCCL's numbers of types (hccl_types.h) and what it computes with them.
namespace collops_sim {

enum Type {
  kInt8 = 0,
  kInt16 = 1,
  kInt32 = 2,
  kFloat16 = 3,
  kFloat32 = 4,
  kInt64 = 5,
  kUInt64 = 6,
  kUInt8 = 7,
  kUInt16 = 8,
  kUInt32 = 9,
  kFloat64 = 10,
  kBFloat16 = 11
};

// Bytes of an element; 0 for a type that no call here takes.
size_t SizeOf(int type);

// In elements of the type.
void Combine(int type, int reduction, void* left, const void* right, size_t count);

}  // namespace collops_sim
