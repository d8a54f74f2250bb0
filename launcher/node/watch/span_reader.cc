#include "launcher/node/watch/span_reader.h"

#include <utility>

namespace dlaunch {

RankSpans SpanReader::look(TimePoint now, const WorkerPlace& place) {
  return look(now, place, spans_file(place.round_dir, place.rank), spans_);
}

RankSpans SpanReader::look_at_trace(TimePoint now, const WorkerPlace& place) {
  return look(now, place, trace_file(place.round_dir, place.rank), traces_);
}

RankSpans SpanReader::look(TimePoint now, const WorkerPlace& place, std::string path,
                           Reads& reads) {
  RankSpans news{.rank = place.rank, .round = place.round, .until = now, .spans = {}};
  if (place.rank < 0 || place.round_dir.empty()) return news;
  Read& read = reads[place.rank];
  if (path != read.path) read = {.path = std::move(path)};
  SpanFile file = read_span_file(read.path, read.last, now);
  if (!file.exists) return news;
  read.last = file.written;
  news.joined = file.joined;
  news.blocked = file.blocked;
  news.least = file.least;
  news.dropped = file.dropped;
  news.spans = std::move(file.spans);
  const std::size_t told = std::exchange(read.texts, file.texts.size());
  for (std::size_t i = told; i < file.texts.size(); ++i) {
    news.texts.push_back(std::move(file.texts[i]));
  }
  return news;
}

}  // namespace dlaunch
