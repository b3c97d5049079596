#pragma once

#include <cstddef>
#include <cstdint>

// XLA's interface for foreign functions, by which a compiled program calls a handler: what of its
// C structs the handlers use, in XLA's layout. tests/jax compares them with the headers of jaxlib.
// A struct of XLA's begins with its size, which grows with fields that later releases add at its
// end; what is declared here is the part that all releases have.
namespace collops::xla {

constexpr int kMajor = 0;

struct Error;  // of XLA, which destroys what a handler returns

enum ErrorCode : int {
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
};

enum ElementType : int {
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kC64 = 15,
  kBF16 = 16,
  kToken = 17,
  kC128 = 18,
};

enum Stage : int { kExecute = 3 };

// What a call carries besides: a list of extensions.
struct Extension {
  size_t struct_size;
  int type;
  Extension* next;
};

struct Version {
  size_t struct_size;
  Extension* extensions;
  int major;
  int minor;
};

// XLA asks a handler once, in place of a call, for which version it was made.
struct Metadata {
  size_t struct_size;
  Version version;
  uint32_t traits;
};
struct MetadataExtension {
  static constexpr int kType = 1;
  Extension base;
  Metadata* metadata;
};

struct Buffer {
  size_t struct_size;
  Extension* extensions;
  ElementType type;
  void* data;
  int64_t num_dims;
  int64_t* dims;
};

struct Text {
  const char* data;
  size_t size;
};

struct Scalar {
  ElementType type;
  void* value;
};

struct Array {
  ElementType type;
  size_t size;
  void* data;
};

// A list of `size` things, of which `types` says what each is. XLA has this struct twice.
struct Buffers {
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  int* types;
  Buffer** buffers;
};

enum AttributeType : int { kArray = 1, kScalar = 3 };

// Sorted by name.
struct Attributes {
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  int* types;
  Text** names;
  void** values;
};

struct CreateErrorArguments {
  size_t struct_size;
  Extension* extensions;
  const char* message;
  ErrorCode code;
};

struct Api {
  size_t struct_size;
  Extension* extensions;
  Version version;
  void* internal;
  Error* (*create_error)(CreateErrorArguments* arguments);
};

struct CallFrame {
  size_t struct_size;
  Extension* extensions;
  const Api* api;
  void* context;
  Stage stage;
  Buffers arguments;
  Buffers results;
  Attributes attributes;
};

}  // namespace collops::xla
