// A plugin of qemu's that counts the instructions of each call of a program: what a call costs, the same in every run, however busy the machine is.
//
// The runner marks the beginning and the end of a call with a prctl that Linux knows nothing of. At the end of each, a line goes to standard error:
//
//   instructions {"all": N, "fmla": .., "smlal": .., "sdot": .., "smmla": ..}
//
// The kinds are vector instructions of AArch64 (Arm Architecture Reference Manual DDI 0487, C7.2) by which one sees which microkernels ran. Blocks are
// counted when they are entered, by one thread. Debian packages no qemu-plugin.h: these are the declarations of qemu's plugin interface, version 1.

#include <cstdint>
#include <cstdio>
#include <cstring>

extern "C" {
typedef uint64_t qemu_plugin_id_t;
struct qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };
typedef void (*qemu_plugin_vcpu_tb_trans_cb_t)(qemu_plugin_id_t, qemu_plugin_tb*);
typedef void (*qemu_plugin_vcpu_syscall_cb_t)(qemu_plugin_id_t, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
size_t qemu_plugin_tb_n_insns(const qemu_plugin_tb*);
qemu_plugin_insn* qemu_plugin_tb_get_insn(const qemu_plugin_tb*, size_t);
const void* qemu_plugin_insn_data(const qemu_plugin_insn*);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, qemu_plugin_vcpu_tb_trans_cb_t);
void qemu_plugin_register_vcpu_tb_exec_inline(qemu_plugin_tb*, qemu_plugin_op, void*, uint64_t);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t, qemu_plugin_vcpu_syscall_cb_t);
__attribute__((visibility("default"))) int qemu_plugin_version = 1;
}

namespace {

constexpr int64_t kPrctl = 167;             // Linux on AArch64
constexpr uint64_t kMark = 0x45444745;      // as in runner.cpp
constexpr uint64_t kBegin = 0, kEnd = 1;

struct Pattern {
  uint32_t mask, bits;
};

struct Kind {
  const char* name;
  Pattern vector, by_element;
  uint64_t executed, at_begin;
};

Kind kinds[] = {
    {"all", {0, 0}, {0, 0}, 0, 0},
    {"fmla", {0xBFA0FC00, 0x0E20CC00}, {0xBF80F400, 0x0F801000}, 0, 0},
    {"smlal", {0xBF20FC00, 0x0E208000}, {0xBF00F400, 0x0F002000}, 0, 0},
    {"sdot", {0xBFE0FC00, 0x0E809400}, {0xBFC0F400, 0x0F80E000}, 0, 0},
    {"smmla", {0xFFE0FC00, 0x4E80A400}, {0xFFE0FC00, 0x4E80A400}, 0, 0},
};

bool is(const Pattern& pattern, uint32_t instruction) { return (instruction & pattern.mask) == pattern.bits; }

void translated(qemu_plugin_id_t, qemu_plugin_tb* block) {
  for (auto& kind : kinds) {
    uint64_t count = 0;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); ++i) {
      uint32_t instruction;
      std::memcpy(&instruction, qemu_plugin_insn_data(qemu_plugin_tb_get_insn(block, i)), sizeof instruction);
      count += is(kind.vector, instruction) || is(kind.by_element, instruction);
    }
    if (count > 0) qemu_plugin_register_vcpu_tb_exec_inline(block, QEMU_PLUGIN_INLINE_ADD_U64, &kind.executed, count);
  }
}

void called(qemu_plugin_id_t, unsigned, int64_t number, uint64_t what, uint64_t side, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t) {
  if (number != kPrctl || what != kMark) return;
  if (side == kBegin) {
    for (auto& kind : kinds) kind.at_begin = kind.executed;
  } else if (side == kEnd) {
    std::fputs("instructions", stderr);
    const char* before = " {";
    for (const auto& kind : kinds) {
      std::fprintf(stderr, "%s\"%s\": %llu", before, kind.name, static_cast<unsigned long long>(kind.executed - kind.at_begin));
      before = ", ";
    }
    std::fputs("}\n", stderr);
    std::fflush(stderr);
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t*, int, char**) {
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_vcpu_syscall_cb(id, called);
  return 0;
}
