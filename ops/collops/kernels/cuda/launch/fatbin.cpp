#include "collops/kernels/cuda/launch/fatbin.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "collops/core/env.h"

namespace collops::cuda {
namespace {

constexpr const char* kVariable = "COLLOPS_KERNELS";
constexpr const char* kFile = "collops_kernels.fatbin";
// How every fatbin begins.
constexpr uint32_t kMagic = 0xba55ed50;

// Why the build made no fatbin; empty if it made one. CMake tells.
#if defined(COLLOPS_NO_KERNELS)
constexpr const char* kNoKernels = COLLOPS_NO_KERNELS;
#else
constexpr const char* kNoKernels = "";
#endif

// The folder of the file from which this code was loaded.
std::string OwnFolder() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&ReadFatbin), &info) == 0) return ".";
  const std::string path = info.dli_fname == nullptr ? "" : info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

struct Fatbin {
  std::vector<char> image;
  Status status;

  Fatbin() {
    const std::string named = GetVariable(kVariable);
    const std::string path = named.empty() ? OwnFolder() + "/" + kFile : named;
    status = Read(path, !named.empty());
  }

  Status Read(const std::string& path, bool named) {
    std::ifstream file(path, std::ios::binary);
    const char* const why = named ? kVariable : kNoKernels;
    COLLOPS_CHECK_ARG(file.good(), ERROR_UNSUPPORTED,
                      "the GPU kernels are missing: there is no file ", path,
                      *why == '\0' ? ""
                      : named      ? ", which is named by "
                                   : ": ",
                      why);
    image.assign(std::istreambuf_iterator<char>(file), {});
    uint32_t magic = 0;
    if (image.size() > sizeof(magic)) std::memcpy(&magic, image.data(), sizeof(magic));
    COLLOPS_CHECK_ARG(magic == kMagic, ERROR_UNSUPPORTED, "the GPU kernels cannot be read: ", path,
                      " is not a fatbin");
    return Ok();
  }
};

}  // namespace

Status ReadFatbin(const std::vector<char>** image) {
  static const Fatbin* const fatbin = new Fatbin;
  *image = &fatbin->image;
  return fatbin->status;
}

}  // namespace collops::cuda
