//===- Plan.h - the host program of one entry -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A Plan is everything the runtime does for one entry on one target: symbols and
// where their values come from, guards, buffers with offsets that are formulas,
// kernels with guarded variants, states, and the steps in order. The compiler
// fills it, serialize() writes it as FlatBuffers (plan.fbs), parse() reads it back
// and checks every index, formula and alignment, so that the runtime trusts a
// parsed plan.
//
// Two scopes of symbols: formulas of the plan are over Plan::symbols; formulas
// inside a Kernel are over Kernel::symbols, to which each LaunchStep gives values.
// So layers (and entries) share a kernel.
//
//===----------------------------------------------------------------------===//
#ifndef LATHE_ENGINE_PLAN_H
#define LATHE_ENGINE_PLAN_H

#include "lathe/support/DType.h"
#include "lathe/support/DimExpr.h"
#include "lathe/support/RandomWeights.h"
#include "lathe/support/Status.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lathe::engine {

/// Where the value of a symbol comes from. The numbers are part of the format.
enum class SymbolOrigin : uint8_t {
  InputDim = 0,    ///< size of axis `axis` of input `index`, whose dim is exactly this symbol
  StateLength = 1, ///< current length of state `index` when the run starts
  Bound = 2,       ///< written by a BindStep
  Iteration = 3,   ///< counter of a LoopStep, from 0
  Constant = 4,    ///< always `min` (an entry that fixed the dimension)
  Derived = 5,     ///< `value` over symbols before it, as soon as they are known
};

struct Symbol {
  std::string name;
  int64_t min = 0;                    ///< below 0 for Bound and Derived alone
  int64_t max = DimRange::kUnbounded; ///< inclusive
  int64_t opt = 1;                    ///< the size that was optimised for
  int64_t multipleOf = 1;
  SymbolOrigin origin = SymbolOrigin::InputDim;
  int32_t index = -1; ///< input or state; -1 for the other origins
  int32_t axis = -1;  ///< of the input; -1 for the other origins
  DimExpr value = 0;  ///< of a Derived symbol; 0 for the other origins
  bool operator==(const Symbol &) const = default;
};

/// lhs <= rhs, lhs == rhs, or lhs mod rhs == 0.
struct Condition {
  enum class Kind : uint8_t { LessEqual = 0, Equal = 1, Divisible = 2 };
  Kind kind = Kind::LessEqual;
  DimExpr lhs, rhs;
  bool operator==(const Condition &) const = default;
};

/// A condition whose failure is an error of the caller: message, and the ONNX node
/// or input that needs it.
struct Guard {
  Condition condition;
  std::string message, location;
  bool operator==(const Guard &) const = default;
};

/// What a tensor of a type consists of in a buffer: strings are numbers there, see Plan::strings.
inline DType storedAs(DType type) { return type == DType::String ? DType::I64 : type; }

/// An input or output of the entry, `storedAs(dtype)` in its buffer. The runtime checks the caller's rank, dtype and
/// every dimension against `dims` once the symbols are known.
struct Port {
  std::string name; ///< as in the ONNX graph
  DType dtype = DType::F32;
  std::vector<DimExpr> dims;
  int32_t buffer = -1;    ///< Plan::buffers
  int32_t donatedTo = -1; ///< input: the output that may take over its memory, or -1
  bool operator==(const Port &) const = default;
};

enum class BufferKind : uint8_t {
  Arena = 0,     ///< `offset` bytes into device arena `index`
  Input = 1,     ///< memory of input `index`
  Output = 2,    ///< memory of output `index`
  Weight = 3,    ///< Plan::weights[index]
  State = 4,     ///< Plan::states[index], whole allocation
  Host = 5,      ///< `offset` bytes into host arena `index`
  Workspace = 6, ///< as Arena; reported apart
  View = 7,      ///< `offset` bytes into buffer `index`, which is no view of a later buffer
};

/// One region of memory. A dense row-major tensor of `physical` sizes in which the
/// value occupies the leading `dims` of each axis; usually the two are equal.
struct Buffer {
  std::string name; ///< for people: the ONNX value; need not be unique
  BufferKind kind = BufferKind::Arena;
  int32_t index = 0; ///< see the kind
  DType dtype = DType::F32;
  std::vector<DimExpr> dims, physical;
  DimExpr bytes;          ///< of the physical tensor; a View may end earlier, with its base
  DimExpr offset;         ///< Arena, Workspace, Host, View: bytes; else 0
  int64_t alignment = 64; ///< a power of two; holds for base plus offset
  /// True: the host reads or writes it directly (always for Host and for views of
  /// it; for inputs, outputs and weights that host steps use). False: device memory.
  bool onHost = false;
  bool operator==(const Buffer &) const = default;
};

/// One allocation of a context, kept between runs and grown when needed. Allocated
/// as soon as the symbols of `bytes` are known; bytes that depend on Bound symbols
/// therefore go to an arena of their own.
struct Arena {
  DimExpr bytes;
  bool onHost = false;
  int32_t device = 0; ///< Resources::devices: on it, or pinned for it
  bool operator==(const Arena &) const = default;
};

inline constexpr const char *kRandomSection = "random";
/// The image of the kernel that makes them on a GPU: `fillRandom` of codegen/device/random.cuh.
inline constexpr const char *kRandomKernel = "lathe.random";

/// The Weights section of what one rank has: "model.0".
inline std::string shardSection(const std::string &section, int64_t rank) {
  return section + "." + std::to_string(rank);
}

struct Weight {
  std::string name;
  std::string section;   ///< name of the engine's Weights section
  uint64_t offset = 0;   ///< bytes into the section, 64-byte aligned
  uint64_t bytes = 0;
  DType dtype = DType::F32;
  std::vector<int64_t> dims; ///< as stored; a packed weight has its packed shape
  std::string sha256;        ///< of the stored bytes, 64 hex digits or empty
  std::string packing;       ///< recipe that was applied; empty: as in the model
  /// Not empty: the engine has no bytes, the runtime makes them. The parts lie inside the weight;
  /// `section` is kRandomSection, which no engine holds.
  std::vector<RandomPart> random;
  /// 0: the same on all ranks. Else Plan::ranks: rank r has the bytes at `offset` of the section
  /// shardSection(section, r), the same number as every other rank.
  int32_t shards = 0;
  bool operator==(const Weight &) const = default;
};

/// A value that lives across calls, shared by all entries by name.
struct State {
  std::string name;
  DType dtype = DType::F32;
  std::vector<DimExpr> physical; ///< allocated sizes; `axis` holds the capacity
  int32_t axis = -1;             ///< the axis that grows; -1: fixed size (RNN state)
  std::string lengthSymbol;      ///< symbol of origin StateLength; empty if the axis is -1
  DimExpr capacity = 0;          ///< == physical[axis]; 0 without axis
  bool zeroInit = true;          ///< zero on creation and reset, without `initial`
  int32_t initial = -1;          ///< the weight that it is on creation and reset, without axis alone; -1: none
  bool operator==(const State &) const = default;
};

struct KernelArg {
  enum class Kind : uint8_t {
    Buffer = 0,    ///< LaunchStep::buffers[index]
    TensorMap = 1, ///< KernelVariant::tensorMaps[index]
    Symbol = 2,    ///< value of Kernel::symbols[index], i64
    Status = 3,    ///< LatheStatusWord*, null when the variant has no channel; index 0
  };
  Kind kind = Kind::Buffer;
  int32_t index = 0;
  bool operator==(const KernelArg &) const = default;
};

/// A CUtensorMap to encode before the launch. im2col: box is {channels per pixel,
/// pixels per column}.
struct TensorMap {
  int32_t buffer = 0;            ///< LaunchStep::buffers[buffer]
  std::vector<DimExpr> dims;     ///< elements, innermost first
  std::vector<DimExpr> strides;  ///< bytes, for dims[1..]
  std::vector<int64_t> box;
  int32_t swizzleBytes = 0;      ///< 0, 32, 64, 128
  bool im2col = false;
  std::vector<int64_t> lowerCorner, upperCorner;
  std::vector<int64_t> steps;    ///< every so many elements of each dimension; empty: all
  int32_t elementBytes = 0;      ///< 8: elements of 8 bytes, several of the buffer's; 0: its own
  bool operator==(const TensorMap &) const = default;
};

/// One launch of one function. The CPU runs block ids [0, grid[0]*grid[1]*grid[2]);
/// its buffers and symbols come in the order of the Buffer and Symbol args.
struct Launch {
  std::string function;
  std::array<DimExpr, 3> grid = {DimExpr(1), DimExpr(1), DimExpr(1)};
  std::array<int64_t, 3> block = {1, 1, 1};
  std::array<int64_t, 3> cluster = {1, 1, 1};
  DimExpr sharedBytes = 0;
  bool programmaticDependent = false;
  std::vector<KernelArg> args;
  bool operator==(const Launch &) const = default;
};

struct KernelVariant {
  std::vector<Condition> guard; ///< all must hold; empty for the last variant
  std::string config;           ///< name of the configuration, for people
  std::string image;            ///< CUDA: cubin in the target's image container; CPU: empty
  std::vector<TensorMap> tensorMaps;
  std::vector<Launch> launches;
  DimExpr workspaceBytes = 0; ///< needed size of the launch's last buffer, 0 without
  DimExpr scratchBytes = 0;   ///< CPU: per worker
  bool status = false;        ///< has a status channel
  bool operator==(const KernelVariant &) const = default;
};

struct Kernel {
  std::string name;
  std::vector<std::string> symbols; ///< all names that formulas of this kernel use
  int32_t numBuffers = 0;           ///< LaunchStep::buffers of every launch
  std::vector<bool> writes;         ///< per buffer: the kernel writes it
  /// Per buffer: the one that is only read and whose memory it may have, whole; else -1.
  /// Any other overlap with a written buffer is an error. Empty: none.
  std::vector<int32_t> aliases;
  std::vector<KernelVariant> variants; ///< first whose guard holds; the last always does
  DimExpr flops = 0, bytes = 0;     ///< of one launch, for the roofline
  bool operator==(const Kernel &) const = default;
};

/// Attribute of a host op or custom call; one of the lists or the text is used.
struct Attribute {
  std::string name;
  std::vector<int64_t> ints;
  std::vector<double> floats;
  std::string text;
  bool operator==(const Attribute &) const = default;
};

struct LaunchStep {
  int32_t kernel = 0;
  std::vector<int32_t> buffers;   ///< Plan::buffers, in the kernel's order
  std::vector<DimExpr> symbols;   ///< value of each Kernel::symbols, over Plan::symbols
  bool operator==(const LaunchStep &) const = default;
};
/// A named operation of runtime/host (HostOps.h lists them). What lies on a device is copied for it.
struct HostOpStep {
  std::string name;
  std::vector<Attribute> attributes;
  std::vector<int32_t> inputs, outputs;
  bool operator==(const HostOpStep &) const = default;
};
/// Copies the smaller of the two buffers' bytes; the sizes must be equal at run time.
/// Crosses host and device as the buffers say.
struct CopyStep {
  int32_t source = 0, target = 0;
  bool operator==(const CopyStep &) const = default;
};
/// Gives a symbol of origin Bound the value of one element (i64, i32, or bool) of a
/// host buffer, or without a buffer (-1) that of a formula, checked against the symbol's min, max and
/// multipleOf.
struct BindStep {
  int32_t symbol = 0;
  int32_t buffer = 0;
  int64_t element = 0;
  DimExpr value = 0;
  bool operator==(const BindStep &) const = default;
};
/// A guard over symbols that are bound on the way.
struct GuardStep {
  Guard guard;
  bool operator==(const GuardStep &) const = default;
};
/// The state grows by `by` along its axis; takes effect when the run has succeeded.
struct AdvanceStateStep {
  int32_t state = 0;
  DimExpr by = 0;
  bool operator==(const AdvanceStateStep &) const = default;
};
/// Shows a buffer to the context's tap callback, if it has one.
struct TapStep {
  int32_t buffer = 0;
  std::string name;
  bool operator==(const TapStep &) const = default;
};
/// A host function that the application registered under this name.
struct CustomCallStep {
  std::string name;
  std::vector<Attribute> attributes;
  std::vector<int32_t> inputs, outputs;
  bool operator==(const CustomCallStep &) const = default;
};
/// Runs block `thenBlock` when the bool in host buffer `condition` is true.
struct IfStep {
  int32_t condition = 0;
  int32_t thenBlock = -1, elseBlock = -1; ///< Plan::blocks; -1: nothing
  bool operator==(const IfStep &) const = default;
};
/// Runs block `body` while the host bool `condition` holds (-1: always), at most the
/// i64 in host buffer `tripCount` times (-1: no bound; then there is a condition).
/// The body writes the condition of its next iteration. `iteration`: a symbol of
/// origin Iteration, or -1.
struct LoopStep {
  int32_t tripCount = -1;
  int32_t condition = -1;
  int32_t iteration = -1;
  int32_t body = 0;
  bool operator==(const LoopStep &) const = default;
};

/// What a CollectiveStep of a reducing kind computes. The numbers are part of the format.
enum class Reduction : uint8_t { Sum = 0, Prod = 1, Max = 2, Min = 3 };

/// A collective of all ranks of the mesh, from one buffer into another: they meet in the order of
/// `order`, which rises along the program and which nothing may change.
struct CollectiveStep {
  std::string name; ///< "all_reduce", "all_gather", "reduce_scatter"
  int32_t order = 0;
  std::vector<int32_t> inputs, outputs; ///< one each
  Reduction reduction = Reduction::Sum; ///< of all_reduce and reduce_scatter
  int32_t dim = 0; ///< that all_gather joins, or reduce_scatter cuts
  bool operator==(const CollectiveStep &) const = default;
};

struct Step {
  std::variant<LaunchStep, HostOpStep, CopyStep, BindStep, GuardStep, AdvanceStateStep, TapStep,
               CustomCallStep, IfStep, LoopStep, CollectiveStep>
      op;
  std::vector<std::string> nodes; ///< ONNX nodes this step comes from
  int32_t stream = 0;             ///< Resources::streams; steps of a stream run in order
  std::vector<int32_t> waits;     ///< events that an earlier step of the program signals
  int32_t signal = -1;            ///< event that is reached when the step is over, or -1
  bool operator==(const Step &) const = default;
};

/// What a plan has of the machine beside its memory. Stream 0 is where the program begins and
/// ends: the others begin behind what is ahead of it, and what follows it waits for all of them.
struct Resources {
  int32_t devices = 1;              ///< of the group, by position; more than one: not yet run
  std::vector<int32_t> streams = {0}; ///< the device of each
  int32_t events = 0;               ///< each is signalled once
  bool operator==(const Resources &) const = default;
};

/// A straight run of steps.
using Block = std::vector<Step>;

struct Plan {
  std::string entry;  ///< "main", "prefill", ...
  std::string target; ///< "x86-64-v3", "sm_90a": as given to --target
  bool cuda = false;  ///< device of the target
  /// CPU features that the kernels need, in LLVM's spelling ("avx2", "avx512f").
  std::vector<std::string> cpuFeatures;
  Resources resources;
  std::vector<Symbol> symbols;
  std::vector<Port> inputs, outputs;
  std::vector<Guard> guards; ///< checked before anything runs
  std::vector<Arena> arenas;
  std::vector<Buffer> buffers;
  std::vector<Weight> weights;
  std::vector<State> states;
  std::vector<Kernel> kernels;
  std::vector<Block> blocks; ///< blocks[0] is the program; If and Loop name later blocks
  int32_t ranks = 1; ///< of the mesh: so many run this program at once, each on shards of its own
  /// Constants, UTF-8, each once and "" first, where the program has strings: a buffer holds of a string its
  /// number (i64), of these their place here. Others get numbers behind them while a run lasts.
  std::vector<std::string> strings;
  bool operator==(const Plan &) const = default;
};

/// FlatBuffers bytes; equal plans give equal bytes. The plan must be valid.
Result<std::string> serialize(const Plan &plan);

/// Reads what serialize() wrote. `bytes` may be arbitrary: every defect is an Invalid
/// error that names the field. `where` is put in front of locations.
Result<Plan> parse(std::string_view bytes, const std::string &where = {});

/// The meaning check that parse() runs; serialize() runs it too, so that a defect of
/// the compiler shows where it is made.
Status verify(const Plan &plan, const std::string &where = {});

/// What a step reads and writes: roots of its buffers (no views), each once, rising. Blocks of If
/// and Loop are not looked into.
struct Effects {
  std::vector<int32_t> reads, writes;
  bool byHost = false; ///< the host takes part
};
Effects effectsOf(const Plan &plan, const Step &step);

/// Part of verify(): streams and events name each other rightly; of two steps of different
/// streams that touch one buffer, which one of them writes, one happens before the other; and no
/// two buffers of buffersBeside() share bytes at the optimal sizes.
Status checkStreams(const Plan &plan, const std::string &where);

/// Pairs of buffers of one arena that may not share bytes because the program has several streams and
/// not every step that touches one happens before every step that touches the other. Whoever knows
/// the sizes checks them with bufferOverlap(). Empty for one stream. The plan must be valid but for
/// that.
std::vector<std::pair<int32_t, int32_t>> buffersBeside(const Plan &plan);
Status bufferOverlap(const Plan &plan, int32_t a, int32_t b); ///< the error

/// Symbol values that make all variants and sizes concrete: the `opt` of each.
std::vector<int64_t> optimalSizes(const Plan &plan);

} // namespace lathe::engine

#endif // LATHE_ENGINE_PLAN_H
