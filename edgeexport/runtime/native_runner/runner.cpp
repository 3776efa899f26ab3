// Runs a .pte as an app does: the C++ runtime, its operators and backends, no Python.
//
//   edgeexport-runner [--threads N] < commands
//
// Commands are JSON objects, one a line, and each is answered by one line:
//
//   {"do": "describe"}                                       the runtime's operators, backends and threads
//   {"do": "load", "program": FILE, "data": [FILE, ..], "mode": "mmap|file", "etdump": FILE}
//                                                            (data: .ptd files; etdump: record events, which are written by "finish")
//   {"do": "load_method", "method": NAME}
//   {"do": "call", "method": NAME, "inputs": [{"file": F, "dtype": "float32", "shape": [..]}, ..], "outputs": PREFIX,
//    "warmup": 0, "repeat": 1}                               raw little-endian tensors in, PREFIX0, PREFIX1, .. out
//   {"do": "memory"}                                         resident bytes, now and at most
//   {"do": "finish"}
//
// {"ok": false, "stage": .., "error": .., "code": ..} is what the runtime refused, with its own error; the runner goes on.

#include <executorch/devtools/etdump/etdump_flatcc.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/platform/runtime.h>

#include <sys/prctl.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

// threadpool.h is not in the wheel (it includes a header that is not there either); the library exports these.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  size_t get_thread_count() const;
  bool _unsafe_reset_threadpool(uint32_t count);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool

namespace {

using executorch::aten::ScalarType;
using executorch::extension::Module;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using json = nlohmann::json;

const std::map<std::string, ScalarType> kTypes = {
    {"float32", ScalarType::Float}, {"float64", ScalarType::Double}, {"float16", ScalarType::Half}, {"bfloat16", ScalarType::BFloat16},
    {"int64", ScalarType::Long},    {"int32", ScalarType::Int},      {"int16", ScalarType::Short},  {"int8", ScalarType::Char},
    {"uint8", ScalarType::Byte},    {"bool", ScalarType::Bool},
};

// What the runtime, or the command, refused.
struct Refused {
  std::string stage;
  std::string message;
  uint32_t code;
};

void require(Error error, const std::string& stage) {
  if (error != Error::Ok) throw Refused{stage, executorch::runtime::to_string(error), static_cast<uint32_t>(error)};
}

ScalarType type_of(const std::string& name) {
  const auto found = kTypes.find(name);
  if (found == kTypes.end()) throw Refused{"inputs", "no dtype is called " + name, 0};
  return found->second;
}

std::string name_of(ScalarType type) {
  for (const auto& [name, candidate] : kTypes)
    if (candidate == type) return name;
  throw Refused{"outputs", "an output has a dtype that this runner does not write", 0};
}

std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Refused{"inputs", "cannot read " + path, 0};
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, const void* data, size_t size) {
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
  if (!file.flush()) throw Refused{"outputs", "cannot write " + path, 0};
}

// Marks where a call begins and ends, for whoever watches: a request that Linux refuses as unknown (instructions.cpp counts between the two).
enum class Side : unsigned long { kBegin = 0, kEnd = 1 };
void mark(Side side) { prctl(0x45444745, static_cast<unsigned long>(side), 0, 0, 0); }

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Bytes of a line of /proc/self/status. The peak there (VmHWM) is this program's own; getrusage's begins with its parent's.
int64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key + ":", 0) == 0) return std::atoll(line.c_str() + key.size() + 1) * 1024;
  return -1;
}

class Runner {
 public:
  explicit Runner(uint32_t threads) {
    executorch::runtime::runtime_init();
    auto* pool = executorch::extension::threadpool::get_threadpool();
    if (pool != nullptr && threads > 0) pool->_unsafe_reset_threadpool(threads);  // safe only now, before anything is loaded
  }

  json answer(const json& command) {
    const std::string what = command.at("do");
    if (what == "describe") return describe();
    if (what == "load") return load(command);
    if (what == "load_method") return load_method(command.at("method"));
    if (what == "call") return call(command);
    if (what == "memory") return {{"rss_bytes", status_bytes("VmRSS")}, {"peak_rss_bytes", status_bytes("VmHWM")}};
    if (what == "finish") return finish();
    throw Refused{"command", "nothing is called " + what, 0};
  }

 private:
  static json describe() {
    std::set<std::string> operators;
    for (const auto& kernel : executorch::runtime::get_registered_kernels()) operators.insert(kernel.name_);
    json backends = json::array();
    for (size_t i = 0; i < executorch::runtime::get_num_registered_backends(); ++i) {
      const auto name = executorch::runtime::get_backend_name(i);
      if (name.ok()) backends.push_back(*name);
    }
    const auto* pool = executorch::extension::threadpool::get_threadpool();
    return {{"operators", operators}, {"backends", backends}, {"threads", pool == nullptr ? 1 : pool->get_thread_count()}};
  }

  json load(const json& command) {
    const auto mode = command.value("mode", "mmap") == "file" ? Module::LoadMode::File : Module::LoadMode::Mmap;
    etdump_path_ = command.value("etdump", "");
    std::unique_ptr<executorch::etdump::ETDumpGen> tracer;
    if (!etdump_path_.empty()) tracer = std::make_unique<executorch::etdump::ETDumpGen>();
    tracer_ = tracer.get();
    const auto start = std::chrono::steady_clock::now();
    // Arenas shared by the methods: by default each has its own state (a key-value cache), and decode_step never sees what prefill wrote.
    module_ = std::make_unique<Module>(
        command.at("program").get<std::string>(), command.value("data", std::vector<std::string>{}), mode, std::move(tracer), nullptr, nullptr,
        /*share_memory_arenas=*/true);
    require(module_->load(executorch::runtime::Program::Verification::Minimal), "load");
    return {{"load_ms", milliseconds_since(start)}};
  }

  json load_method(const std::string& name) {
    const auto start = std::chrono::steady_clock::now();
    require(module().load_method(name), "load_method");
    const double load_ms = milliseconds_since(start);
    const auto meta = module().method_meta(name);
    require(meta.error(), "load_method");
    int64_t planned = 0;
    for (size_t i = 0; i < meta->num_memory_planned_buffers(); ++i) planned += *meta->memory_planned_buffer_size(i);
    return {{"load_ms", load_ms}, {"planned_bytes", planned}, {"instructions", meta->num_instructions()}};
  }

  json call(const json& command) {
    const std::string method = command.at("method");
    std::vector<std::vector<uint8_t>> bytes;
    std::vector<executorch::extension::TensorPtr> tensors;
    std::vector<EValue> inputs;
    for (const auto& input : command.at("inputs")) {
      const auto type = type_of(input.at("dtype"));
      const auto shape = input.at("shape").get<std::vector<executorch::aten::SizesType>>();
      bytes.push_back(read_file(input.at("file")));
      size_t size = executorch::runtime::elementSize(type);
      for (const auto dim : shape) size *= dim;
      if (size != bytes.back().size()) throw Refused{"inputs", input.at("file").get<std::string>() + " has not the bytes of its shape", 0};
      tensors.push_back(executorch::extension::make_tensor_ptr(shape, bytes.back().data(), type));
      inputs.emplace_back(tensors.back());
    }
    const int warmup = command.value("warmup", 0), repeat = command.value("repeat", 1);
    std::vector<double> latency_ms;
    std::vector<EValue> outputs;
    for (int turn = 0; turn < warmup + repeat; ++turn) {
      mark(Side::kBegin);
      const auto start = std::chrono::steady_clock::now();
      auto result = module().execute(method, inputs);
      const double taken_ms = milliseconds_since(start);
      if (result.ok()) mark(Side::kEnd);  // what was refused is no call
      require(result.error(), "execute");
      if (turn >= warmup) latency_ms.push_back(taken_ms);
      outputs = std::move(*result);
    }
    return {{"latency_ms", latency_ms}, {"outputs", write_outputs(outputs, command.at("outputs"))}};
  }

  static json write_outputs(const std::vector<EValue>& outputs, const std::string& prefix) {
    json written = json::array();
    for (const auto& output : outputs) {
      if (!output.isTensor()) throw Refused{"outputs", "an output is not a tensor", 0};
      const auto& tensor = output.toTensor();
      const std::string file = prefix + std::to_string(written.size());
      write_file(file, tensor.const_data_ptr(), tensor.nbytes());
      const std::vector<int64_t> shape(tensor.sizes().begin(), tensor.sizes().end());
      written.push_back({{"file", file}, {"dtype", name_of(tensor.scalar_type())}, {"shape", shape}});
    }
    return written;
  }

  json finish() {
    if (tracer_ == nullptr) return json::object();
    const auto events = tracer_->get_etdump_data();
    if (events.buf == nullptr || events.size == 0) throw Refused{"finish", "nothing was recorded", 0};
    write_file(etdump_path_, events.buf, events.size);
    std::free(events.buf);
    return {{"etdump", etdump_path_}, {"size_bytes", events.size}};
  }

  Module& module() {
    if (module_ == nullptr) throw Refused{"command", "nothing is loaded", 0};
    return *module_;
  }

  std::unique_ptr<Module> module_;
  executorch::etdump::ETDumpGen* tracer_ = nullptr;
  std::string etdump_path_;
};

}  // namespace

int main(int argc, char** argv) {
  uint32_t threads = 0;
  if (argc == 3 && std::string(argv[1]) == "--threads") {
    threads = static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10));
  } else if (argc != 1) {
    std::cerr << "usage: edgeexport-runner [--threads N] < commands\n";
    return 2;
  }
  Runner runner(threads);
  for (std::string line; std::getline(std::cin, line);) {
    json answer;
    try {
      answer = runner.answer(json::parse(line));
      answer["ok"] = true;
    } catch (const Refused& refused) {
      answer = {{"ok", false}, {"stage", refused.stage}, {"error", refused.message}, {"code", refused.code}};
    } catch (const json::exception& error) {
      answer = {{"ok", false}, {"stage", "command"}, {"error", error.what()}, {"code", 0}};
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}
