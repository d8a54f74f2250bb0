// Operations that the program has made with dl_op_create() and dl_op_create_premul_sum(), behind
// their numbers of dl_op. The table belongs to the process. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "base/result.h"
#include "dlaunch/ring.h"

namespace dlaunch {

// Call::op of a sum of products: its values have been multiplied, or are multiplied on their way
// in.
inline constexpr auto kPremulSum = static_cast<dl_op>(8);

struct ProgramOp {
  dl_op_function* function = nullptr;  // null: a sum of products
  void* context = nullptr;
  double factor = 1;
};

// Numbers from kFirstFunction on belong to the program's operations. Odd ones keep the order of
// ranks: their functions do not commute.
inline constexpr int kFirstFunction = 16;
constexpr bool is_function(dl_op op) { return op >= kFirstFunction; }
constexpr bool is_in_order(dl_op op) { return is_function(op) && op % 2 == 1; }
// What ranks compare, and an index into kOpNames: functions differ only in whether they commute.
constexpr unsigned op_code(dl_op op) {
  constexpr unsigned kFunction = 9, kFunctionInOrder = 10;
  return !is_function(op)  ? static_cast<unsigned>(op)
         : is_in_order(op) ? kFunctionInOrder
                           : kFunction;
}

// Gives each operation a number of its own, for ever: a freed one must not stand for another one.
class OpNumbers {
 public:
  explicit OpNumbers(int next = kFirstFunction) : next_(next) {}
  std::optional<dl_op> take(bool commutes);

 private:
  int next_;  // even; 0: none is left
};

// Errc::unsupported: the process has made 2^30 operations.
Result<dl_op> add_program_op(const ProgramOp& op, bool commutes);
// False: there is none. Holders of program_op() can still use it.
bool remove_program_op(dl_op op);
// For a new call; null: there is none.
std::shared_ptr<const ProgramOp> program_op(dl_op op);

// reduce() by a function of the program: ((in[0] op in[1]) op in[2]) ..., some elements of all
// operands at a time. A caller holds the operation. A function that fails ends the call by an
// exception, Thrown of base/result.h, because no result may leave a plane then.
void reduce_by_function(std::span<const void* const> in, void* out, std::size_t count,
                        dl_dtype dtype, dl_op op);

}  // namespace dlaunch
