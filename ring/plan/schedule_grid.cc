// Two-dimensional schedules, in the manner of Bokhari and Berryman (1992) for an exchange of all
// with all.
#include "ring/plan/schedule_algorithms.h"

namespace dlaunch {
namespace {

// The grid of ranks. A column's ranks follow each other, and so do their slices. Columns differ by
// one rank at most. Each rank has a peer in each other column: the one of its row, or, for the last
// rank of a longer column, one that depends on that column, so that no rank serves many of them.
//
// Each rank gathers values for its column: its own, and those of the ranks that have it as their
// peer in that column. The gatherings of a column's ranks together have each rank once.
class Grid {
 public:
  Grid(const Shape& shape, int rank, int ranks) : columns(grid_columns(ranks)), ranks_(ranks) {
    for (int r = 0; r < ranks; ++r) begins_.push_back(slice_of(shape, r, ranks).first);
    const Part last = slice_of(shape, ranks - 1, ranks);
    begins_.push_back(last.first + last.count);
    for (std::size_t& begin : begins_) begin *= shape.element_bytes;
    while (first(column + 1) <= rank) ++column;
    row = rank - first(column);
    gathered = gathering(row);
    values_.resize(static_cast<std::size_t>(ranks));
    scratch_bytes = gathered.size() * column_bytes(column);
    for (int r = 0; r < height(column); ++r) {
      for (const int from : gathering(r)) {
        if (r == row) {
          values_[from] = gathered_value(from, own());
        } else {
          values_[from] = {Region::scratch, scratch_bytes};
          scratch_bytes += bytes(own());
        }
      }
    }
  }

  int rank_at(int r, int c) const { return first(c) + r; }
  int height(int c) const { return first(c + 1) - first(c); }
  // The peer of this rank in another column.
  int peer_in(int c) const { return rank_at(row < height(c) ? row : column % height(c), c); }
  // Of a rank of this column: in the order of ranks.
  std::vector<int> gathering(int r) const {
    std::vector<int> from;
    for (int c = 0; c < columns; ++c) {
      if (c == column || r < height(c)) from.push_back(rank_at(r, c));
      const bool longer = height(c) > height(column);
      if (longer && c % height(column) == r) from.push_back(rank_at(height(c) - 1, c));
    }
    return from;
  }

  // Bytes of a rank's slice, or of all slices of a column.
  std::size_t begin(int rank) const { return begins_[static_cast<std::size_t>(rank)]; }
  std::size_t bytes(int rank) const { return begin(rank + 1) - begin(rank); }
  std::size_t column_begin(int c) const { return begin(first(c)); }
  std::size_t column_bytes(int c) const { return column_begin(c + 1) - column_begin(c); }

  int own() const { return rank_at(row, column); }
  // Where a gathered rank's value for the slice of `owner`, a rank of this column, is.
  Location gathered_value(int from, int owner) const {
    if (from == own()) return {Region::in, begin(owner)};
    const auto index = std::ranges::find(gathered, from) - gathered.begin();
    return {Region::scratch, static_cast<std::size_t>(index) * column_bytes(column) + begin(owner) -
                                 column_begin(column)};
  }
  // Where a rank's value for this rank's own slice is.
  Location value(int from) const { return values_[static_cast<std::size_t>(from)]; }

  const int columns;
  int column = 0, row = 0;
  std::vector<int> gathered;
  std::size_t scratch_bytes = 0;

 private:
  int first(int c) const { return ranks_ / columns * c + std::min(c, ranks_ % columns); }

  const int ranks_;
  std::vector<std::size_t> begins_;  // by rank, and the end; bytes
  std::vector<Location> values_;     // by rank
};

// The sends of values, by the row or column to which they go. In place, a result overwrites what
// such a send reads.
struct Sent {
  explicit Sent(const Grid& grid)
      : to_row(static_cast<std::size_t>(grid.height(grid.column)), kNoStep),
        to_column(static_cast<std::size_t>(grid.columns), kNoStep) {}
  std::vector<std::int32_t> to_row, to_column;
};

// Values go to the peer in each column, and from there to the ranks of that column whose slices
// they are for. Returns the step that makes the result of this rank's slice.
std::int32_t spread_values(const Grid& grid, Location result, std::int32_t then, Sent& sent,
                           ProgramBuilder& b) {
  const std::size_t own_bytes = grid.bytes(grid.own());
  const auto sum = b.reduce(result, own_bytes, true, then);
  for (int r = 0; r < b.ranks(); ++r) b.operand(grid.value(r));
  for (int d = 1; d < grid.columns; ++d) {
    const int c = (grid.column + d) % grid.columns;
    sent.to_column[c] =
        b.send(grid.peer_in(c), {Region::in, grid.column_begin(c)}, grid.column_bytes(c), kNoStep);
  }
  // Values for a rank of the column leave together, as many as fit one system call.
  const auto all_gathered = grid.gathered.size() > 1 ? b.join(sum) : kNoStep;
  for (const int from : grid.gathered) {
    if (from == grid.own()) continue;
    b.recv(from, grid.gathered_value(from, grid.rank_at(0, grid.column)),
           grid.column_bytes(grid.column), kNoStep, all_gathered);
  }
  const int height = grid.height(grid.column);
  for (int d = 1; d < height; ++d) {
    const int to = (grid.row + d) % height, from = (grid.row - d + height) % height;
    const int peer = grid.rank_at(to, grid.column), other = grid.rank_at(from, grid.column);
    for (const int r : grid.gathered) {
      sent.to_row[to] = b.send(peer, grid.gathered_value(r, peer), grid.bytes(peer), all_gathered);
    }
    for (const int r : grid.gathering(from)) {
      b.recv(other, grid.value(r), own_bytes, kNoStep, sum);
    }
  }
  b.scratch(grid.scratch_bytes);
  return sum;
}

// The same ways back: each result to the ranks of its column, and all results of a column to the
// ranks from which values came. `all_here`: the results of this column are there.
void spread_results(const Grid& grid, Location own, std::int32_t own_is_here, std::int32_t all_here,
                    const Sent& sent, ProgramBuilder& b) {
  const int height = grid.height(grid.column);
  for (int d = 1; d < height; ++d) {
    const int to = (grid.row + d) % height, from = (grid.row - d + height) % height;
    const int other = grid.rank_at(from, grid.column);
    b.send(grid.rank_at(to, grid.column), own, grid.bytes(grid.own()), own_is_here);
    b.recv(other, {Region::out, grid.begin(other)}, grid.bytes(other), sent.to_row[from], all_here);
  }
  for (const int to : grid.gathered) {
    if (to == grid.own()) continue;
    b.send(to, {Region::out, grid.column_begin(grid.column)}, grid.column_bytes(grid.column),
           all_here);
  }
  for (int d = 1; d < grid.columns; ++d) {
    const int c = (grid.column + d) % grid.columns;
    b.recv(grid.peer_in(c), {Region::out, grid.column_begin(c)}, grid.column_bytes(c),
           sent.to_column[c]);
  }
}

}  // namespace

void grid_schedule(const Shape& shape, ProgramBuilder& b) {
  const Grid grid(shape, b.rank(), b.ranks());
  Sent sent(grid);
  if (shape.collective == Collective::reduce_scatter) {
    spread_values(grid, {Region::out, 0}, kNoStep, sent, b);
    return;
  }
  const auto all_here = b.join();
  if (shape.collective == Collective::all_gather) {
    copy_own_data(shape, b, all_here);
    spread_results(grid, {Region::in, 0}, kNoStep, all_here, sent, b);
    return;
  }
  const Location own{Region::out, grid.begin(grid.own())};
  const auto sum = spread_values(grid, own, all_here, sent, b);
  spread_results(grid, own, sum, all_here, sent, b);
}

}  // namespace dlaunch
