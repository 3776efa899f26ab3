// Runs one method of a server package (.pt2) from C++, with nothing but libtorch.
//
//   run_package PACKAGE.pt2 METHOD INPUTS.pt OUTPUTS.pt
//
// INPUTS.pt is a list of tensors as torch.save writes it; a method with state takes its state after its inputs, and writes it in place.
// OUTPUTS.pt gets the tuple of the outputs, followed by the inputs as the call left them.

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

std::vector<char> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<char> read_record(caffe2::serialize::PyTorchStreamReader& archive, const std::string& name) {
  auto [data, size] = archive.getRecord(name);
  const char* begin = static_cast<const char*>(data.get());
  return {begin, begin + size};
}

std::vector<int64_t> numbers(const std::string& list) {
  std::vector<int64_t> result;
  static const std::regex number("\\d+");
  for (std::sregex_iterator it(list.begin(), list.end(), number), end; it != end; ++it) result.push_back(std::stoll(it->str()));
  return result;
}

// The weights of a method by name. A package stores each tensor once for all its methods (data/weights); weights_config.json says
// which of them a method takes, as {"name": ["file", [shape], [strides], offset], ...}.
std::unordered_map<std::string, at::Tensor> read_weights(const std::string& package, const std::string& method) {
  caffe2::serialize::PyTorchStreamReader archive(package);
  const auto config = read_record(archive, "data/aotinductor/" + method + "/weights_config.json");
  const std::string text(config.begin(), config.end());
  static const std::regex entry(R"re("([^"]+)": \["([^"]+)", \[([^\]]*)\], \[([^\]]*)\], (\d+)\])re");
  std::unordered_map<std::string, at::Tensor> weights;
  for (std::sregex_iterator it(text.begin(), text.end(), entry), end; it != end; ++it) {
    const auto stored = torch::pickle_load(read_record(archive, "data/weights/" + (*it)[2].str())).toTensor();
    weights[(*it)[1]] = stored.as_strided(numbers((*it)[3]), numbers((*it)[4]), std::stoll((*it)[5]));
  }
  return weights;
}

int run(const std::string& package, const std::string& method, const std::string& inputs_path, const std::string& outputs_path) {
  c10::InferenceMode no_gradients;
  torch::inductor::AOTIModelPackageLoader model(package, method);
  auto weights = read_weights(package, method);
  model.load_constants(weights, /*use_inactive=*/false, /*check_full_update=*/true, /*user_managed=*/true);

  std::vector<at::Tensor> inputs;
  const c10::IValue given = torch::pickle_load(read_file(inputs_path));
  for (const c10::IValue& input : given.toListRef()) inputs.push_back(input.toTensor());
  const auto outputs = model.run(inputs);
  std::vector<c10::IValue> results(outputs.begin(), outputs.end());
  results.insert(results.end(), inputs.begin(), inputs.end());
  const auto bytes = torch::pickle_save(c10::ivalue::Tuple::create(results));  // a tuple: a list would need a type that torch.load refuses
  std::ofstream(outputs_path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: run_package PACKAGE.pt2 METHOD INPUTS.pt OUTPUTS.pt\n";
    return 2;
  }
  try {
    return run(argv[1], argv[2], argv[3], argv[4]);
  } catch (const std::exception& error) {
    std::cerr << "run_package: " << error.what() << "\n";
    return 1;
  }
}
