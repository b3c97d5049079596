// Compiled by test_declarations.py: bindings/xla/ffi.h against the header of jaxlib.
#include <xla/ffi/api/c_api.h>

#include <cstddef>
#include <type_traits>

#include "xla/ffi.h"

namespace xla = collops::xla;

#define SAME_FIELD(ours, field, theirs, their_field)                            \
  static_assert(offsetof(ours, field) == offsetof(theirs, their_field), #ours); \
  static_assert(sizeof(ours::field) == sizeof(theirs::their_field), #ours)
#define SAME_NUMBER(ours, theirs) \
  static_assert(static_cast<long>(ours) == static_cast<long>(theirs), #ours)

SAME_NUMBER(xla::kMajor, XLA_FFI_API_MAJOR);
SAME_NUMBER(xla::kInvalidArgument, XLA_FFI_Error_Code_INVALID_ARGUMENT);
SAME_NUMBER(xla::kDeadlineExceeded, XLA_FFI_Error_Code_DEADLINE_EXCEEDED);
SAME_NUMBER(xla::kResourceExhausted, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
SAME_NUMBER(xla::kFailedPrecondition, XLA_FFI_Error_Code_FAILED_PRECONDITION);
SAME_NUMBER(xla::kAborted, XLA_FFI_Error_Code_ABORTED);
SAME_NUMBER(xla::kUnimplemented, XLA_FFI_Error_Code_UNIMPLEMENTED);
SAME_NUMBER(xla::kInternal, XLA_FFI_Error_Code_INTERNAL);
SAME_NUMBER(xla::kUnavailable, XLA_FFI_Error_Code_UNAVAILABLE);

SAME_NUMBER(xla::kPred, XLA_FFI_DataType_PRED);
SAME_NUMBER(xla::kS8, XLA_FFI_DataType_S8);
SAME_NUMBER(xla::kS16, XLA_FFI_DataType_S16);
SAME_NUMBER(xla::kS32, XLA_FFI_DataType_S32);
SAME_NUMBER(xla::kS64, XLA_FFI_DataType_S64);
SAME_NUMBER(xla::kU8, XLA_FFI_DataType_U8);
SAME_NUMBER(xla::kU16, XLA_FFI_DataType_U16);
SAME_NUMBER(xla::kU32, XLA_FFI_DataType_U32);
SAME_NUMBER(xla::kU64, XLA_FFI_DataType_U64);
SAME_NUMBER(xla::kF16, XLA_FFI_DataType_F16);
SAME_NUMBER(xla::kF32, XLA_FFI_DataType_F32);
SAME_NUMBER(xla::kF64, XLA_FFI_DataType_F64);
SAME_NUMBER(xla::kC64, XLA_FFI_DataType_C64);
SAME_NUMBER(xla::kBF16, XLA_FFI_DataType_BF16);
SAME_NUMBER(xla::kToken, XLA_FFI_DataType_TOKEN);
SAME_NUMBER(xla::kC128, XLA_FFI_DataType_C128);

SAME_NUMBER(xla::kExecute, XLA_FFI_ExecutionStage_EXECUTE);
SAME_NUMBER(xla::MetadataExtension::kType, XLA_FFI_Extension_Metadata);
SAME_NUMBER(xla::kArray, XLA_FFI_AttrType_ARRAY);
SAME_NUMBER(xla::kScalar, XLA_FFI_AttrType_SCALAR);

SAME_FIELD(xla::Extension, struct_size, XLA_FFI_Extension_Base, struct_size);
SAME_FIELD(xla::Extension, type, XLA_FFI_Extension_Base, type);
SAME_FIELD(xla::Extension, next, XLA_FFI_Extension_Base, next);

SAME_FIELD(xla::Version, struct_size, XLA_FFI_Api_Version, struct_size);
SAME_FIELD(xla::Version, extensions, XLA_FFI_Api_Version, extension_start);
SAME_FIELD(xla::Version, major, XLA_FFI_Api_Version, major_version);
SAME_FIELD(xla::Version, minor, XLA_FFI_Api_Version, minor_version);
static_assert(sizeof(xla::Version) == sizeof(XLA_FFI_Api_Version), "");

SAME_FIELD(xla::Metadata, struct_size, XLA_FFI_Metadata, struct_size);
SAME_FIELD(xla::Metadata, version, XLA_FFI_Metadata, api_version);
SAME_FIELD(xla::Metadata, traits, XLA_FFI_Metadata, traits);
SAME_FIELD(xla::MetadataExtension, base, XLA_FFI_Metadata_Extension, extension_base);
SAME_FIELD(xla::MetadataExtension, metadata, XLA_FFI_Metadata_Extension, metadata);

SAME_FIELD(xla::Buffer, type, XLA_FFI_Buffer, dtype);
SAME_FIELD(xla::Buffer, data, XLA_FFI_Buffer, data);
SAME_FIELD(xla::Buffer, num_dims, XLA_FFI_Buffer, rank);
SAME_FIELD(xla::Buffer, dims, XLA_FFI_Buffer, dims);

SAME_FIELD(xla::Text, data, XLA_FFI_ByteSpan, ptr);
SAME_FIELD(xla::Text, size, XLA_FFI_ByteSpan, len);
SAME_FIELD(xla::Scalar, type, XLA_FFI_Scalar, dtype);
SAME_FIELD(xla::Scalar, value, XLA_FFI_Scalar, value);
SAME_FIELD(xla::Array, type, XLA_FFI_Array, dtype);
SAME_FIELD(xla::Array, size, XLA_FFI_Array, size);
SAME_FIELD(xla::Array, data, XLA_FFI_Array, data);

SAME_FIELD(xla::Buffers, size, XLA_FFI_Args, size);
SAME_FIELD(xla::Buffers, types, XLA_FFI_Args, types);
SAME_FIELD(xla::Buffers, buffers, XLA_FFI_Args, args);
SAME_FIELD(xla::Buffers, buffers, XLA_FFI_Rets, rets);
static_assert(sizeof(xla::Buffers) == sizeof(XLA_FFI_Args), "");
static_assert(sizeof(xla::Buffers) == sizeof(XLA_FFI_Rets), "");

SAME_FIELD(xla::Attributes, size, XLA_FFI_Attrs, size);
SAME_FIELD(xla::Attributes, types, XLA_FFI_Attrs, types);
SAME_FIELD(xla::Attributes, names, XLA_FFI_Attrs, names);
SAME_FIELD(xla::Attributes, values, XLA_FFI_Attrs, attrs);

SAME_FIELD(xla::CreateErrorArguments, struct_size, XLA_FFI_Error_Create_Args, struct_size);
SAME_FIELD(xla::CreateErrorArguments, extensions, XLA_FFI_Error_Create_Args, extension_start);
SAME_FIELD(xla::CreateErrorArguments, message, XLA_FFI_Error_Create_Args, message);
SAME_FIELD(xla::CreateErrorArguments, code, XLA_FFI_Error_Create_Args, errc);

SAME_FIELD(xla::Api, version, XLA_FFI_Api, api_version);
SAME_FIELD(xla::Api, create_error, XLA_FFI_Api, XLA_FFI_Error_Create);

SAME_FIELD(xla::CallFrame, extensions, XLA_FFI_CallFrame, extension_start);
SAME_FIELD(xla::CallFrame, api, XLA_FFI_CallFrame, api);
SAME_FIELD(xla::CallFrame, stage, XLA_FFI_CallFrame, stage);
SAME_FIELD(xla::CallFrame, arguments, XLA_FFI_CallFrame, args);
SAME_FIELD(xla::CallFrame, results, XLA_FFI_CallFrame, rets);
SAME_FIELD(xla::CallFrame, attributes, XLA_FFI_CallFrame, attrs);
