// The options of other launchers that are not in our own option table, and what becomes of each:
// it stands for options of ours, it is accepted because it changes nothing here, or it is refused
// with the reason and the way out. Pure.
//
// The tables follow what each launcher's own --help or argument parser lists: torchrun and
// accelerate (foreign_torch.cc), deepspeed and horovodrun (foreign_training.cc), mpirun of Open MPI
// and mpiexec of MPICH (foreign_mpi.cc), srun (foreign_slurm.cc). Where two launchers mean
// different things by one word, torchrun's and mpirun's meaning holds, and Meaning::warning says
// so.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace dlaunch {

enum class Fate { ours, nothing, refused };

// What one use of an option comes to.
struct Meaning {
  std::vector<std::string> words;  // that stand for it, each "--name" or "--name=value"
  std::string note = {};           // for -v: why it changes nothing
  std::string warning = {};        // for everybody: which of two meanings it has
};
// From the option's values. An error's text completes the sentence "'--option' of LAUNCHER: …".
using Translate = Result<Meaning> (*)(const std::vector<std::string>& values);

inline constexpr int kAfterEquals = -1;  // a value only after '='; the next word is not its own

struct ForeignOption {
  std::string_view names;  // separated by blanks, without dashes
  int values;              // words that follow it, or kAfterEquals
  Fate fate;
  // ours: the words that stand for it, "{}" is its value; nothing: why; refused: why, and the way
  // out. With `translate` it is for the manual alone.
  std::string_view text;
  Translate translate = nullptr;  // where the value decides; it may refuse, too
};

struct ForeignTable {
  std::string_view launcher;
  std::span<const ForeignOption> options;
};

std::span<const ForeignTable> foreign_tables();

struct ForeignMatch {
  const ForeignOption* option = nullptr;  // null: no launcher that we know has it
  std::string_view launcher;
};
// The first in the order of the tables. '_' counts as '-'.
ForeignMatch find_foreign(std::string_view name);

// `values` are as many as the option takes. Errors: usage.
Result<Meaning> meaning_of(const ForeignOption& option, const std::vector<std::string>& values);

}  // namespace dlaunch
