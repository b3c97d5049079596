#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

// torch's caching allocator, in short: memory belongs to the stream that was current, and is given
// out there again as soon as it is freed; with record_stream, once that stream is done with it.
namespace torch_on_sim {

c10::Allocator* DeviceAllocator();
void RecordStream(const c10::DataPtr& memory, const c10::Stream& stream);

}  // namespace torch_on_sim
