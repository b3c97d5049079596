#include "collops/operators/linear_parallel/engine.h"

#include <array>
#include <iterator>
#include <utility>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/control/control.h"
#include "collops/core/env.h"

namespace collops {
namespace {

const Engine* const kEngines[] = {&kLocal, &kWindows, &kPipeline, &kStreams};

// The methods by their types, and what else the plain level's messages say of the terms.
constexpr const char* kMethods[] = {"matmul_all_reduce", "matmul_reduce_scatter",
                                    "all_gather_matmul", "type 3",
                                    "all_gather_matmul_reduce_scatter"};
constexpr std::array<TermWords, 12> PlainWords(const char* weight_dim, const char* gather_rows,
                                               const char* scatter_rows) {
  return {{{"type", "the call is", "", "", kMethods, std::size(kMethods)},
           {"quantType", "the quantisation is (by ATB's number)"},
           {"outDataType", "out is"},
           {"sumLeaves", "leaves is"},
           {"k", "x has k =", " columns"},
           {"k of all ranks", "the x of all ranks have k =", " columns"},
           {"n", "weight has n =", weight_dim},
           {"agDim", "ag_dim is"},
           {"rsDim", "rs_dim is"},
           {"innerDimIsAg", "inner_dim_is_ag is"},
           {"gatherRows", gather_rows},
           {"scatterRows", scatter_rows}}};
}
// By trans_weight, and by whether the method has one list of rows.
constexpr std::array<TermWords, 12> kPlainWords[2][2] = {
    {PlainWords(" columns", "gather_rows", "scatter_rows"),
     PlainWords(" columns", "sizes", "sizes")},
    {PlainWords(" rows", "gather_rows", "scatter_rows"), PlainWords(" rows", "sizes", "sizes")}};

std::string EngineNames() {
  std::string names;
  for (const Engine* engine : kEngines) names += Concat(names.empty() ? "" : ", ", engine->name);
  return names;
}

// Grids that cut the ranks alike share their subgroups, whatever the type of the product. A cut is
// known by its size and step, which are those of every rank's group.
Status FindPart(const RowGroup& group, int other_index, const LinearRun& run,
                std::shared_ptr<Communicator>* part) {
  *part = run.communicator->shared_from_this();
  const int size = static_cast<int>(group.ranks.size());
  if (size == run.communicator->size() || size == 1) return Ok();
  const std::string cut = Concat(size, " ranks, ", group.ranks[1] - group.ranks[0], " apart");
  return run.communicator->KeptSplit(cut, other_index, group.ranks, part);
}

}  // namespace

std::vector<std::pair<const char*, Status>> AskEngines(const EnginePlace& place) {
  std::vector<std::pair<const char*, Status>> answers;
  for (const Engine* engine : kEngines) answers.emplace_back(engine->name, engine->accepts(place));
  return answers;
}

Status CheckEngineName(const std::string& name) {
  for (const Engine* engine : kEngines) {
    if (name == engine->name) return Ok();
  }
  return Error(ERROR_INVALID_PARAM, "LinearParallel: unknown engine \"", name, "\": use one of ",
               EngineNames(), ", or none for the first that can run");
}

Status ChooseEngine(const std::string& name, const EnginePlace& place, const Engine** engine,
                    const char* called) {
  if (!name.empty()) COLLOPS_RETURN_IF_ERROR(CheckEngineName(name));
  Status why;
  for (const Engine* candidate : kEngines) {
    if (!name.empty() && name != candidate->name) continue;
    *engine = candidate;
    why = candidate->accepts(place);
    if (why.ok()) return Ok();
  }
  return Error(why.code(), called, ": engine \"", (*engine)->name,
               "\" cannot run this call: ", why.message());
}

EnginePlace PlaceOf(const LinearLayout& layout, Communicator& communicator, bool by_default) {
  EnginePlace place;
  place.backend = communicator.spec().backend;
  place.rank_size = communicator.size();
  place.gather_ranks = layout.gather.ranks.size();
  place.scatter_ranks = layout.scatter.ranks.size();
  // A fused call is one of all ranks, also of those that are in other groups.
  place.has_windows = communicator.WindowPeers().all();
  place.on_device = communicator.device().kind != DeviceKind::kCpu;
  place.has_int8 = layout.quant.kind != LinearQuant::kNone;
  place.has_leaves = layout.leaves.count > 0;
  if (place.on_device && communicator.stream_compute() != nullptr) {
    place.leaves_missing = communicator.stream_compute()->leaves_missing();
  }
  place.runs_int8 =
      place.on_device && communicator.stream_compute() != nullptr &&
      (layout.quant.kind == LinearQuant::kWeight || communicator.stream_compute()->has_int8());
  Env env;
  place.windows_wanted = !by_default || (Env::Read(&env).ok() && env.fused);
  return place;
}

void AddLinearTerms(const LinearSettings& settings, const LinearPlan& plan, Agreement* agreement) {
  const LinearParallelParam& param = settings.param;
  const bool on_grid = param.type == LinearParallelParam::ALL_GATHER_LINEAR_REDUCE_SCATTER;
  LinearParallelParam::TwoDimTPInfo grid;  // of other types it is not read
  if (on_grid) grid = param.twoDimTPInfo;
  const LinearLayout& layout = plan.layout;
  const LinearLeaves& leaves = layout.leaves;
  agreement->EqualText("dtype", Name(plan.dtype))
      .Equal("rankRoot", param.rankRoot)
      .Equal("type", param.type)
      .Equal("quantType", param.quantType)
      .EqualText("outDataType", Name(plan.output_dtype))
      .EqualText("op", plan.divisor == 1.0F ? "sum" : "avg")
      .Equal("agDim", grid.agDim)
      .Equal("rsDim", grid.rsDim)
      .Equal("innerDimIsAg", grid.innerDimIsAg)
      .Equal("sumLeaves", leaves.count)
      .Equal(leaves.count == 0 ? "k" : "k of all ranks", leaves.count == 0 ? layout.k : leaves.k)
      .Equal("n", layout.n)
      // Before the sum, which follows from it and says less.
      .EqualInGroup("gatherRows", layout.gather.ranks, layout.gather.index, layout.gather.rows)
      .Equal("the sum of the rows", layout.total_rows)
      .EqualText("the engine (COLLOPS_FUSED)", plan.engine->name)
      .EqualInGroup("scatterRows", layout.scatter.ranks, layout.scatter.index, layout.scatter.rows);
  if (leaves.count > 0) {
    agreement->EqualInGroup("the ranks' first leaves", layout.scatter.ranks, layout.scatter.index,
                            leaves.begins);
  }
  const char* const method = settings.voice.method;
  if (method == nullptr) return;
  const std::array<TermWords, 12>& words =
      kPlainWords[param.transWeight][settings.voice.has_one_list];
  agreement->InPlainWords(method, 1, words.data(), static_cast<int>(words.size()));
}

Status CheckOnCpu(const EnginePlace& place) {
  COLLOPS_CHECK_ARG(!place.on_device, ERROR_UNSUPPORTED,
                    "it computes on the CPU, and the tensors of backend ", place.backend,
                    " are on a device");
  return Ok();
}

kernels::GemmPlan PlanProduct(DType dtype, int64_t k, int64_t n, bool trans_weight,
                              bool widens_weight, const LinearLeaves& leaves) {
  if (leaves.count == 0) return kernels::PlanGemm(dtype, k, n, trans_weight, widens_weight);
  return kernels::PlanLeaves(dtype, n, trans_weight, widens_weight, leaves.borders, leaves.tree);
}

Status PlanLinear(LinearPlan* plan) {
  const LinearLayout& layout = plan->layout;
  const LinearLeaves& leaves = layout.leaves;
  if (plan->stream_compute == nullptr) {
    plan->gemm = PlanProduct(plan->dtype, layout.k, layout.n, layout.trans_weight,
                             layout.quant.kind == LinearQuant::kWeight, leaves);
  }
  for (size_t member = 0; member + 1 < leaves.begins.size(); ++member) {
    plan->roots.push_back(kernels::NumRoots(
        kernels::TreeWithin(leaves.count, leaves.begins[member], leaves.begins[member + 1])));
  }
  if (leaves.count > 0) plan->tree = kernels::TreeOfRoots(leaves.begins);
  return plan->engine->plan(plan);
}

Status FindParts(const LinearRun& run, GridParts* parts) {
  const RowGroup& gather = run.plan.layout.gather;
  const RowGroup& scatter = run.plan.layout.scatter;
  COLLOPS_RETURN_IF_ERROR(FindPart(gather, scatter.index, run, &parts->gather));
  return FindPart(scatter, gather.index, run, &parts->scatter);
}

Status InGroup(const LinearPlan& plan, const std::vector<int>& ranks, const Status& status) {
  if (status.ok() || static_cast<int>(ranks.size()) == plan.rank_size) return status;
  std::string list;
  for (const int rank : ranks) list += Concat(list.empty() ? "" : ", ", rank);
  return Error(status.code(), plan.called, ": in the group of ranks ", list,
               ", which are numbered from 0 there: ", status.message());
}

Status FailInParts(const LinearRun& run, const Status& status) {
  control::Control& control = ControlOf(*run.communicator);
  return control.Fail(status, control.step_number());
}

}  // namespace collops
