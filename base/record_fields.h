// for_each_field(record, visit): visit(member) for each member of a plain struct, in order.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <type_traits>

namespace dlaunch {

namespace record_detail {

struct Anything {
  template <class T>
  operator T() const {
    std::abort();  // only asked for, never called
  }
};

// The number of members of the struct.
template <class T, class... Members>
consteval std::size_t members_of() {
  if constexpr (requires { T{Members{}..., Anything{}}; }) {
    return members_of<T, Members..., Anything>();
  } else {
    return sizeof...(Members);
  }
}

}  // namespace record_detail

// At most 28 members, none of them an array.
template <class T, class Visit>
constexpr void for_each_field(T& record, Visit& visit) {
  static_assert(std::is_aggregate_v<T>, "no record, and no kind of member that has an encoding");
  constexpr std::size_t n = record_detail::members_of<std::remove_const_t<T>>();
  static_assert(n <= 28, "more members than this function has branches for");
  const auto each = [&](auto&... members) { (visit(members), ...); };
  if constexpr (n == 0) {
    each();
  } else if constexpr (n == 1) {
    auto& [f1] = record;
    each(f1);
  } else if constexpr (n == 2) {
    auto& [f1, f2] = record;
    each(f1, f2);
  } else if constexpr (n == 3) {
    auto& [f1, f2, f3] = record;
    each(f1, f2, f3);
  } else if constexpr (n == 4) {
    auto& [f1, f2, f3, f4] = record;
    each(f1, f2, f3, f4);
  } else if constexpr (n == 5) {
    auto& [f1, f2, f3, f4, f5] = record;
    each(f1, f2, f3, f4, f5);
  } else if constexpr (n == 6) {
    auto& [f1, f2, f3, f4, f5, f6] = record;
    each(f1, f2, f3, f4, f5, f6);
  } else if constexpr (n == 7) {
    auto& [f1, f2, f3, f4, f5, f6, f7] = record;
    each(f1, f2, f3, f4, f5, f6, f7);
  } else if constexpr (n == 8) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8);
  } else if constexpr (n == 9) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9);
  } else if constexpr (n == 10) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10);
  } else if constexpr (n == 11) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11);
  } else if constexpr (n == 12) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12);
  } else if constexpr (n == 13) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13);
  } else if constexpr (n == 14) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14);
  } else if constexpr (n == 15) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15);
  } else if constexpr (n == 16) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16);
  } else if constexpr (n == 17) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17);
  } else if constexpr (n == 18) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18] =
        record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18);
  } else if constexpr (n == 19) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19] =
        record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19);
  } else if constexpr (n == 20) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
           f20] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20);
  } else if constexpr (n == 21) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
           f20, f21] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20,
         f21);
  } else if constexpr (n == 22) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
           f20, f21, f22] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20,
         f21, f22);
  } else if constexpr (n == 23) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
           f20, f21, f22, f23] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20,
         f21, f22, f23);
  } else if constexpr (n == 24) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
           f20, f21, f22, f23, f24] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20,
         f21, f22, f23, f24);
  } else if constexpr (n == 25) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
           f20, f21, f22, f23, f24, f25] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20,
         f21, f22, f23, f24, f25);
  } else if constexpr (n == 26) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
           f20, f21, f22, f23, f24, f25, f26] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20,
         f21, f22, f23, f24, f25, f26);
  } else if constexpr (n == 27) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
           f20, f21, f22, f23, f24, f25, f26, f27] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20,
         f21, f22, f23, f24, f25, f26, f27);
  } else if constexpr (n == 28) {
    auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
           f20, f21, f22, f23, f24, f25, f26, f27, f28] = record;
    each(f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19, f20,
         f21, f22, f23, f24, f25, f26, f27, f28);
  }
}

}  // namespace dlaunch
