// Calls the package of toy_text.py as an app does, and prints what it observed: a name, a tab, a text.
#include <edgeexport_toy/toy.hpp>

#include <exception>
#include <functional>
#include <iomanip>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using edgeexport_toy::Check;
using edgeexport_toy::EncodeOutputs;
using edgeexport_toy::Shape;
using edgeexport_toy::ToyText;
using Tokens = std::vector<std::int64_t>;

static_assert(std::is_nothrow_move_constructible_v<ToyText> && std::is_nothrow_move_assignable_v<ToyText> && !std::is_copy_constructible_v<ToyText>);

void say(const std::string& name, const std::string& text) { std::cout << name << "\t" << text << "\n"; }

// What an action throws, with the kind of it.
void say_refusal(const std::string& name, const std::function<void()>& action) {
  try {
    action();
    say(name, "nothing");
  } catch (const std::invalid_argument& error) {
    say(name, std::string("invalid_argument: ") + error.what());
  } catch (const std::logic_error& error) {
    say(name, std::string("logic_error: ") + error.what());
  } catch (const std::runtime_error& error) {
    say(name, std::string("runtime_error: ") + error.what());
  }
}

std::vector<float> vector_to_write_about() {
  std::vector<float> x(256 * 32);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = (static_cast<float>(i % 17) - 8.0f) / 8.0f;
  return x;
}

void write_text(ToyText& model) {
  const auto about = model.encode({vector_to_write_about(), {1, 256, 32}});
  model.prefill({Tokens{2, 7, 1}, {1, 3}}, {Tokens{0}, {1}}, about);
  const Tokens words = {3, 1, 4};
  std::int64_t place = 3;
  for (const auto word : words) {
    const auto answer = model.decode_step({Tokens{word}, {1, 1}}, {Tokens{place++}, {1}}, about);
    std::cout << "logits\t" << std::setprecision(9);
    for (const float logit : answer.logits.data) std::cout << logit << " ";
    std::cout << "\n";
  }
}

void say_refusals(ToyText& model) {
  const auto x = vector_to_write_about();
  const auto about = model.encode({x, {1, 256, 32}});
  const auto encode = [&](const float* data, std::size_t count, Shape shape) { return [&, data, count, shape] { model.encode({data, count, shape}); }; };
  const auto prefill = [&](Tokens tokens, std::int64_t position) {
    return [&, tokens, position] { model.prefill({tokens, {1, static_cast<std::int64_t>(tokens.size())}}, {Tokens{position}, {1}}, about); };
  };
  say_refusal("right", prefill({2, 7, 1}, 9));
  say_refusal("rank", encode(x.data(), x.size(), {256, 32}));
  say_refusal("size", encode(x.data(), x.size(), {1, 256, 31}));
  say_refusal("less than nothing", encode(x.data(), x.size(), {-1, -256, 32}));
  say_refusal("count", encode(x.data(), x.size() - 1, {1, 256, 32}));
  say_refusal("null", encode(nullptr, x.size(), {1, 256, 32}));
  say_refusal("bound", prefill(Tokens(13, 1), 0));
  say_refusal("no tokens", prefill({}, 0));
  say_refusal("value", prefill({1, 4000}, 0));
  say_refusal("negative", prefill({-1}, 0));
  say_refusal("last", prefill({2, 7, 1}, 10));
}

void say_moves(const std::string& program) {
  ToyText first(program), second(program);
  ToyText third(std::move(first));
  second = std::move(third);
  const auto x = vector_to_write_about();
  say_refusal("moved to", [&] { second.encode({x, {1, 256, 32}}); });
  say_refusal("moved from", [&] { third.encode({x, {1, 256, 32}}); });
}

void say_turns(ToyText& model) {
  const auto x = vector_to_write_about();
  const auto right = model.encode({x, {1, 256, 32}});
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (auto& mine : wrong)
    threads.emplace_back([&] {
      for (int turn = 0; turn < 10; ++turn) mine += model.encode({x, {1, 256, 32}}).cross_keys_0.data != right.cross_keys_0.data;
    });
  for (auto& thread : threads) thread.join();
  say("wrong of threads", std::to_string(wrong[0] + wrong[1] + wrong[2] + wrong[3]));
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  ToyText model(argv[1]);
  write_text(model);
  say_refusals(model);
  say_moves(argv[1]);
  say_turns(model);
  for (int i = 2; i < argc; ++i) {
    say_refusal(argv[i], [&] { ToyText damaged(argv[i]); });
    say_refusal(std::string(argv[i]) + " by its size", [&] { ToyText damaged(argv[i], Check::size); });
  }
  return 0;
}
