#include "collops/comm/backends/ucx/plain_window.h"

#include <algorithm>
#include <new>

namespace collops::ucx {
namespace {

constexpr std::align_val_t kAlignment{4096};

}  // namespace

Status PlainWindow::Allocate(int64_t bytes, RankSet own, std::shared_ptr<Window>* window) {
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  void* const data = ::operator new(size, kAlignment, std::nothrow);
  COLLOPS_CHECK_ARG(data != nullptr, ERROR_OUT_OF_HOST_MEMORY, "this process cannot allocate ",
                    bytes, " more bytes");
  *window = std::make_shared<PlainWindow>(data, bytes, std::move(own));
  return Ok();
}

PlainWindow::~PlainWindow() {
  ::operator delete(data_, kAlignment);
}

}  // namespace collops::ucx
