// The refusals of tests/refusals/refusals.txt from C++: reads one call per line from standard input
// and prints what is said to it, in the words of that table. A line is the operator, its struct as
// JSON, the number of inputs, and the tensors, separated by tabs. A tensor is its dtype, format,
// device, flags, offset in the memory below or "-", its sizes, and its numbers if they are counts.
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "collops/operators/params.h"

using namespace collops;

namespace {

alignas(64) char memory[1 << 20];

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

std::vector<int64_t> Numbers(const std::string& text) {
  std::vector<int64_t> numbers;
  for (const std::string& part : Split(text, ',')) numbers.push_back(std::stoll(part));
  return numbers;
}

Device DeviceOf(const std::string& text) {
  const auto parts = Split(text, ':');
  const DeviceKind kind = parts[0] == "cuda"  ? DeviceKind::kCuda
                          : parts[0] == "npu" ? DeviceKind::kNpu
                                              : DeviceKind::kCpu;
  return {kind, parts.size() < 2 ? 0 : std::stoi(parts[1])};
}

TensorView Tensor(const std::string& text) {
  const auto words = Split(text, ' ');
  TensorView tensor;
  ParseDType(words.at(0).c_str(), &tensor.desc.dtype);
  ParseFormat(words.at(1).c_str(), &tensor.desc.format);
  tensor.device = DeviceOf(words.at(2));
  tensor.contiguous = words.at(3).find('c') != std::string::npos;
  tensor.read_only = words.at(3).find('r') != std::string::npos;
  tensor.foreign_endian = words.at(3).find('f') != std::string::npos;
  if (words.at(4) != "-") tensor.data = memory + std::stoll(words[4]);
  const auto sizes = Numbers(words.at(5) == "-" ? "" : words[5]);
  tensor.desc.shape = Shape::From(sizes.data(), static_cast<int>(sizes.size()));
  if (words.at(6) != "-") {
    const auto numbers = Numbers(words[6]);
    std::memcpy(tensor.data, numbers.data(), numbers.size() * sizeof(int64_t));
  }
  // Counts of another device: reading them would crash.
  if (!(tensor.device == Device())) tensor.data = reinterpret_cast<void*>(uintptr_t{64});
  return tensor;
}

std::string Text(const char* step, const Status& status) {
  return std::string(step) + " " + std::to_string(static_cast<int>(status.code())) + " " +
         status.message();
}

// What the call is told; the function without a communicator says what InferShape says.
template <typename Param>
std::string Told(const std::string& json, const VariantPack& pack) {
  Param param;
  std::unique_ptr<Operation> operation;
  Status status = FromJson(json, &param);
  if (status.ok()) status = CreateOperation(param, &operation);
  if (!status.ok()) return Text("create", status);
  std::vector<TensorDesc> inputs;
  for (const TensorView& view : pack.inputs) inputs.push_back(view.desc);
  std::vector<TensorDesc> outputs;
  status = operation->InferShape(inputs, &outputs);
  const Status alone = InferShape(param, param.rankSize, inputs, &outputs);
  uint64_t bytes = 0;
  const Status planned = operation->GetWorkspaceSize(pack, &bytes);
  if (status.message() != alone.message()) return Text("free function", alone);
  if (!status.ok()) return Text(planned.message() == status.message() ? "infer" : "other", status);
  return planned.ok() ? "ok" : Text("plan", planned);
}

const std::map<std::string, std::function<std::string(const std::string&, const VariantPack&)>>
    kOperators = {{"AllGatherV", Told<AllGatherVParam>},
                  {"ReduceScatterV", Told<ReduceScatterVParam>},
                  {"AllGather", Told<AllGatherParam>},
                  {"ReduceScatter", Told<ReduceScatterParam>},
                  {"AllReduce", Told<AllReduceParam>},
                  {"Broadcast", Told<BroadcastParam>},
                  {"AllToAll", Told<AllToAllParam>},
                  {"AllToAllV", Told<AllToAllVParam>},
                  {"AllToAllVV2", Told<AllToAllVV2Param>},
                  {"Send", Told<SendParam>},
                  {"Recv", Told<RecvParam>},
                  {"LinearParallel", Told<LinearParallelParam>}};

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto parts = Split(line, '\t');
    VariantPack pack;
    const size_t behind_inputs = 3 + std::stoul(parts.at(2));
    for (size_t i = 3; i < parts.size(); ++i) {
      (i < behind_inputs ? pack.inputs : pack.outputs).push_back(Tensor(parts[i]));
    }
    std::cout << kOperators.at(parts[0])(parts[1], pack) << std::endl;
  }
}
