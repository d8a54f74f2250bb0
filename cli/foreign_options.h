// The options of other launchers that our own option table lacks, and the fate of each: it is
// translated to options of ours, it is accepted because it changes nothing here, or it is refused
// with the reason and an alternative. Pure.
//
// The tables follow each launcher's own --help or argument parser: torchrun and accelerate
// (foreign_torch.cc), deepspeed and horovodrun (foreign_training.cc), mpirun of Open MPI and
// mpiexec of MPICH (foreign_mpi.cc), srun (foreign_slurm.cc). If two launchers mean different
// things by one word, torchrun's and mpirun's meaning holds, and Meaning::warning says so.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace dlaunch {

enum class Fate { ours, nothing, refused };

// The translation of one use of an option.
struct Meaning {
  std::vector<std::string> words;  // our options for it, each "--name" or "--name=value"
  std::string note = {};           // for -v: why it changes nothing
  std::string warning = {};        // always shown: which of two meanings it has
};
// Translates the option's values. An error's text completes the sentence "'--option' of LAUNCHER:
// …".
using Translate = Result<Meaning> (*)(const std::vector<std::string>& values);

inline constexpr int kAfterEquals = -1;  // a value only after '='; the next word is separate

struct ForeignOption {
  std::string_view names;  // separated by blanks, without dashes
  int values;              // words that follow it, or kAfterEquals
  Fate fate;
  // ours: our words for it, "{}" is its value; nothing: why; refused: why, and the alternative.
  // With `translate` it is only for the manual.
  std::string_view text;
  Translate translate = nullptr;  // for options whose value decides; may also refuse
};

struct ForeignTable {
  std::string_view launcher;
  std::span<const ForeignOption> options;
};

std::span<const ForeignTable> foreign_tables();

struct ForeignMatch {
  const ForeignOption* option = nullptr;  // null: no known launcher has it
  std::string_view launcher;
};
// The first match in the order of the tables. '_' counts as '-'.
ForeignMatch find_foreign(std::string_view name);

// `values`: as many as the option takes. Errors: usage.
Result<Meaning> meaning_of(const ForeignOption& option, const std::vector<std::string>& values);

}  // namespace dlaunch
