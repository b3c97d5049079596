// Output shapes from the struct, the number of ranks and the inputs: no communicator is made, and
// no address is read.
#include <string>
#include <vector>

#include "check.h"
#include "collops/operators/params.h"

using namespace collops;

namespace {

constexpr DType kF32 = DType::kFloat32;
constexpr DType kI64 = DType::kInt64;

TensorDesc Desc(DType dtype, const Shape& shape) {
  TensorDesc desc;
  desc.dtype = dtype;
  desc.shape = shape;
  return desc;
}

template <typename Param>
Param Struct(int rank) {
  Param param;
  param.rank = rank;
  return param;
}

// The outputs' shapes, or the error's message.
template <typename Param>
std::string Shapes(const Param& param, int rank_size, const std::vector<TensorDesc>& inputs) {
  std::vector<TensorDesc> outputs;
  const Status status = InferShape(param, rank_size, inputs, &outputs);
  if (!status.ok()) return status.message();
  std::string text;
  for (const TensorDesc& output : outputs) {
    text += Concat(text.empty() ? "" : " ", Name(output.dtype), ToString(output.shape));
  }
  return text;
}

}  // namespace

TEST(CollectivesOfOneShape) {
  const std::vector<TensorDesc> x = {Desc(kF32, {6, 5})};
  EXPECT_EQ(Shapes(Struct<AllGatherParam>(1), 3, x), "float32[3, 6, 5]");
  EXPECT_EQ(Shapes(Struct<ReduceScatterParam>(2), 3, x), "float32[2, 5]");
  EXPECT_EQ(Shapes(Struct<AllReduceParam>(0), 3, x), "float32[6, 5]");
  EXPECT_EQ(Shapes(Struct<BroadcastParam>(0), 3, x), "");
  auto transposed = Struct<AllToAllParam>(1);
  EXPECT_EQ(Shapes(transposed, 3, x), "float32[6, 5]");
  transposed.backend = "lccl";
  transposed.transpose = true;
  EXPECT_EQ(Shapes(transposed, 3, {Desc(kF32, {5, 6})}), "float32[15, 2]");
}

TEST(CollectivesOfUnevenBlocks) {
  const TensorDesc lists = Desc(kI64, {3});
  const TensorDesc one = Desc(kI64, {1});
  const TensorDesc y = Desc(DType::kFloat16, {11});
  const TensorDesc x = Desc(kF32, {4, 5});
  EXPECT_EQ(Shapes(Struct<AllGatherVParam>(-1), 3, {x, one, lists, lists, y}), "float32[11, 5]");
  EXPECT_EQ(Shapes(Struct<ReduceScatterVParam>(1), 3, {x, lists, lists, one, y}), "float32[11, 5]");
  auto in_struct = Struct<AllToAllVParam>(1);
  in_struct.sendCounts = {1, 0, 4};
  in_struct.sdispls = {0, 1, 1};
  in_struct.recvCounts = {7, 0, 2};
  in_struct.rdispls = {0, 7, 7};
  EXPECT_EQ(Shapes(in_struct, 3, {x}), "float32[1, 9]");
}

TEST(LinearParallelOfUnevenRows) {
  auto param = Struct<LinearParallelParam>(1);
  param.type = LinearParallelParam::ALL_GATHER_LINEAR_REDUCE_SCATTER;
  param.twoDimTPInfo.agDim = 2;
  param.twoDimTPInfo.rsDim = 2;
  param.gatherRows = {3, 8};
  param.scatterRows = {10, 1};
  const std::vector<TensorDesc> inputs = {Desc(kF32, {8, 16}), Desc(kF32, {24, 16})};
  EXPECT_EQ(Shapes(param, 4, inputs), "float32[10, 24]");
}
