#include "launcher/process/own_binary.h"

#include <elf.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

struct Note {
  std::uint32_t type;
  std::string name, content;
};

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string padded_to_four(std::string text) { return text + std::string(-text.size() % 4, '\0'); }

// A header, one part of notes, and those.
std::string elf_with(const std::vector<Note>& notes) {
  std::string all;
  for (const Note& note : notes) {
    Elf64_Nhdr head{};
    head.n_namesz = static_cast<Elf64_Word>(note.name.size());
    head.n_descsz = static_cast<Elf64_Word>(note.content.size());
    head.n_type = note.type;
    all += bytes_of(head) + padded_to_four(note.name) + padded_to_four(note.content);
  }
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_phoff = sizeof header;
  header.e_phnum = 1;
  Elf64_Phdr part{};
  part.p_type = PT_NOTE;
  part.p_offset = sizeof header + sizeof part;
  part.p_filesz = all.size();
  return bytes_of(header) + bytes_of(part) + all;
}

const std::string kGnu("GNU", 4);

}  // namespace

TEST_CASE("our own file is known by its size and its build ID") {
  const auto own = OwnBinary::open();
  REQUIRE(own);
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::string whole(std::filesystem::file_size("/proc/self/exe"), '\0');
  REQUIRE(file.read(whole.data(), static_cast<std::streamsize>(whole.size())));
  CHECK(own->size() == whole.size());
  CHECK(own->build_id() == find_build_id(whole));
  CHECK(whole.substr(own->build_id_at(), own->build_id().size()) == own->build_id());
  const auto read = own->read();
  REQUIRE(read);
  CHECK(*read == whole);
}

TEST_CASE("the build ID is found after other notes; without one it is empty") {
  const Note id{NT_GNU_BUILD_ID, kGnu, std::string(20, 'x')};
  const std::string with = elf_with({{NT_GNU_ABI_TAG, kGnu, "0123456789abcdef"}, id});
  CHECK(find_build_id(with) == id.content);
  CHECK(find_build_id(with + "more") == id.content);
  CHECK(find_build_id(elf_with({})).empty());
  CHECK(find_build_id(elf_with({{NT_GNU_BUILD_ID, std::string("Go\0\0", 4), id.content}})).empty());
  CHECK(find_build_id(elf_with({{NT_GNU_BUILD_ID, kGnu, "short"}})).empty());
}

TEST_CASE("whatever the bytes are, nothing is read beyond their end") {
  const std::string good = elf_with({{NT_GNU_BUILD_ID, kGnu, std::string(20, 'x')}});
  for (std::size_t size = 0; size < good.size(); ++size) {
    CHECK(find_build_id(std::string_view(good).substr(0, size)).empty());
    for (const char byte : {'\0', '\x7f', '\xff'}) {
      std::string other = good;
      other[size] = byte;
      const auto found = find_build_id(other);
      CHECK((found.empty() || found.data() + found.size() <= other.data() + other.size()));
    }
  }
}
