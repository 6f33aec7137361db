//===- Options.cpp - the command line of one verb -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Options.h"

#include "lathe/codegen/Target.h"

#include <algorithm>
#include <cstdlib>

namespace lathe::cli {
namespace {

constexpr size_t kColumn = 30, kWidth = 98;

/// Words of `text` in lines that begin at column `indent`.
std::string wrap(const std::string &text, size_t indent) {
  std::string out, line, word;
  auto flush = [&] {
    if (!line.empty() && indent + line.size() + 1 + word.size() > kWidth) {
      out += line + "\n" + std::string(indent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    word.clear();
  };
  for (char c : text)
    if (c == ' ')
      flush();
    else
      word += c;
  flush();
  return out + line;
}

size_t distance(const std::string &a, const std::string &b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t next = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = row[j];
      row[j] = next;
    }
  }
  return row[b.size()];
}

} // namespace

std::string nearest(const std::string &word, const std::vector<std::string> &known) {
  std::string best;
  size_t least = 3;
  for (const std::string &other : known)
    if (size_t d = distance(other, word); d < least) {
      best = other;
      least = d;
    }
  return best;
}

void Parser::add(std::string name, std::string value, std::string help, Setter set) {
  options.push_back({std::move(name), std::move(value), std::move(help), std::move(set)});
}

void Parser::add(std::string name, std::string value, std::string help, std::string &into) {
  add(std::move(name), std::move(value), std::move(help), [&into](const std::string &text) {
    into = text;
    return okStatus();
  });
}

void Parser::add(std::string name, std::string value, std::string help,
                 std::vector<std::string> &into) {
  add(std::move(name), std::move(value), std::move(help), [&into](const std::string &text) {
    into.push_back(text);
    return okStatus();
  });
}

void Parser::add(std::string name, std::string value, std::string help, double &into) {
  add(name, std::move(value), std::move(help), [&into, name](const std::string &text) {
    char *end = nullptr;
    into = std::strtod(text.c_str(), &end);
    if (text.empty() || *end || !(into >= 0))
      return usageError("wants a number that is not negative, not '" + text + "'", "--" + name);
    return okStatus();
  });
}

void Parser::add(std::string name, std::string value, std::string help, int &into) {
  add(name, std::move(value), std::move(help), [&into, name](const std::string &text) {
    char *end = nullptr;
    long number = std::strtol(text.c_str(), &end, 10);
    if (text.empty() || *end || number < 0 || number > 1 << 30)
      return usageError("wants a whole number that is not negative, not '" + text + "'",
                        "--" + name);
    into = int(number);
    return okStatus();
  });
}

void Parser::flag(std::string name, std::string help, bool &into) {
  add(std::move(name), "", std::move(help), [&into](const std::string &) {
    into = true;
    return okStatus();
  });
}

void Parser::hidden(std::string name, std::string &into) {
  add(std::move(name), "VALUE", "", into);
  options.back().isHidden = true;
}

const Parser::Option *Parser::find(const std::string &name) const {
  for (const Option &option : options)
    if (option.name == name)
      return &option;
  return nullptr;
}

Result<std::vector<std::string>> Parser::parse(const std::vector<std::string> &arguments,
                                               bool &helpWanted) const {
  std::vector<std::string> positional;
  bool onlyPositional = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string &argument = arguments[i];
    if (onlyPositional || argument.size() < 2 || argument[0] != '-') {
      positional.push_back(argument);
      continue;
    }
    if (argument == "--") {
      onlyPositional = true;
      continue;
    }
    if (argument == "--help" || argument == "-h") {
      helpWanted = true;
      return positional;
    }
    size_t begin = argument[1] == '-' ? 2 : 1, equals = argument.find('=');
    std::string name = argument.substr(begin, equals == std::string::npos ? equals : equals - begin);
    const Option *option = find(name);
    if (!option) {
      std::vector<std::string> known;
      for (const Option &other : options)
        if (!other.isHidden)
          known.push_back(other.name);
      std::string meant = nearest(name, known);
      return usageError("unknown option" +
                            (meant.empty() ? "; `lathe " + verb + " --help` lists them"
                                           : "; did you mean --" + meant + "?"),
                        argument);
    }
    std::string value;
    if (option->value.empty()) {
      if (equals != std::string::npos)
        return usageError("takes no value", argument);
    } else if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return usageError("wants a value: " + option->value, argument);
    }
    LATHE_RETURN_IF_ERROR(option->set(value));
  }
  return positional;
}

std::string Parser::help() const {
  std::string out = "lathe " + verb + " " + wrap(synopsis, 8 + verb.size()) + "\n\n" +
                    wrap(about, 0) + "\n\nOptions:\n";
  for (const Option &option : options) {
    if (option.isHidden)
      continue;
    std::string left = (option.name.size() == 1 ? "  -" : "  --") + option.name;
    if (!option.value.empty())
      left += (option.name.size() == 1 ? " " : "=") + option.value;
    left += left.size() + 2 > kColumn ? "\n" + std::string(kColumn, ' ')
                                      : std::string(kColumn - left.size(), ' ');
    out += left + wrap(option.help, kColumn) + "\n";
  }
  out += "  --help" + std::string(kColumn - 8, ' ') + "This text\n\nExamples:\n";
  for (const std::string &example : examples)
    out += "  " + example + "\n";
  return out;
}

void addCompileOptions(Parser &parser, CompileOptions &into, bool withEntries) {
  auto compile = [&](const char *name) {
    return [&into, name](const std::string &value) { return addCompileOption(into, name, value); };
  };
  std::string targets;
  for (const std::string &name : Target::knownNames())
    targets += (targets.empty() ? "" : ", ") + name;
  parser.add("target", "NAME[,NAME]",
             "What the engine shall run on: " + targets + " (default: native)", compile("target"));
  parser.add("dim", "NAME=LO:OPT:HI",
             "Least, usual and greatest size of a dimension, named by its symbol (B) or place "
             "(x[0]); NAME=N fixes it",
             compile("dim"));
  if (withEntries) {
    parser.add("shape", "INPUT=1x3x224x224",
               "The sizes of an input: the model is compiled for them alone, or for any size where "
               "one is ?, x=?x3x?x?, also where the model states a size or no rank. Of a sequence how many "
               "tensors it has, x=[3], which are the inputs x[0], x[1], x[2] (else a run gives any number of "
               "them); of an optional without a value, x=none",
               compile("shape"));
    parser.add("entry", "NAME:DIM=SIZE[,...]",
               "An entry of this name with these dimensions bound; may be repeated",
               compile("entry"));
  }
  parser.add("const", "INPUT=FILE",
             "Make an input a constant, from .npy or .pb: axes, sizes or pads that lathe needs to "
             "know when it compiles; x[0] is a tensor of the sequence x",
             compile("const"));
  parser.add("donate", "INPUT=OUTPUT",
             "The output takes over the input's memory: where a dimension grows, the pair lives "
             "across runs as a state, and that dimension needs an upper bound; of equal sizes (a "
             "pool of pages), the caller gives one memory for both and scatters write into it",
             compile("donate"));
  parser.add("parameter", "INPUT",
             "CPU: an input that changes seldom, as weights do; may be repeated. What follows from "
             "parameters alone and packed weights are results of the entry 'prepare', and inputs of the "
             "others: `lathe run` chains them, --entry prepare --entry main",
             compile("parameter"));
  parser.add("random-weights", "SEED",
             "Make external weights whose file is absent from a seed, where the engine is loaded: a "
             "graph alone compiles and runs",
             compile("random-weights"));
  parser.add("winograd-tolerance", "X",
             "CPU: let 3x3 convolutions run by Winograd's F(4,3) where its expected relative error "
             "is at most X (about 8e-7 for 64 channels, 1.8e-6 for 512; default: F(2,3) alone, "
             "which is more exact than the direct sum)",
             compile("winograd-tolerance"));
  parser.add("sparse-weights", "auto|never|always",
             "Leave zeros in the weights of products out. CPU: blocks of 1x16 and 4x16, where an estimate says that it "
             "gains 3 % (auto, the default), nowhere (never), or wherever it is possible (always); results are the "
             "same. CPU and GPU: of products that always have one row, behind a threshold (always: or relu), the weights of inputs "
             "that are zero. sm_90a: blocks of 64x64 of 16-bit weights in the same way, and two of each four along the depth (2:4) "
             "of 8 or 16 bits with always alone, where results have 16 bits; with always an input that is infinite or NaN "
             "where the weight is a zero that is left out does not make the result NaN",
             compile("sparse-weights"));
  parser.add("streams", "N",
             "GPU: spread independent kernels over at most N streams, wherever an estimate says that "
             "it gains anything; 1: keep all on one (default: up to 4, where it gains a tenth)",
             compile("streams"));
  parser.add("mesh", "AXIS=RANKS",
             "Divide the model among so many ranks, as tp=2: each holds shards of the weights, and they meet "
             "at collectives; which value is divided how is searched for",
             compile("mesh"));
  parser.add("shard", "NAME=dim:D|all",
             "With --mesh: divide this weight, or the result of this node, along a dimension, or not at all",
             compile("shard"));
  parser.add("rank-memory", "SIZE",
             "With --mesh: what each rank has for weights, states and values that live at once, as 16G; where the fastest "
             "division is estimated to take more, another that fits is searched for",
             compile("rank-memory"));
  parser.add("replace", "KERNEL=FILE.cu",
             "Use this CUDA text for a kernel, as `inspect --source KERNEL` prints it; K.0 names the "
             "first variant of kernel K alone",
             compile("replace"));
  parser.add("allow", "WHAT[,WHAT]",
             "Let a GPU be less exact: tf32 (products of f32 lose all but 10 bits of their operands' "
             "fractions), reduced-sums (sums of 8-bit floats keep about 14 bits)",
             compile("allow"));
  parser.add("lock", "FILE", "Use the configurations that `lathe tune` has measured", compile("lock"));
  parser.add("config", "KERNEL=CONFIGURATION",
             "Run a kernel (* for all matrix products) in this configuration, as `inspect --kernels` names them; of several "
             "with commas between, the first that can be and on a GPU does not spill; for several targets name one of each",
             compile("config"));
}

} // namespace lathe::cli
