//===- TopologyFile.cpp - a mesh's machines as JSON -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "TopologyFile.h"

#include "Options.h"
#include "Results.h"

#include "lathe/support/Files.h"

#include "llvm/Support/JSON.h"

#include <algorithm>
#include <set>

namespace lathe::cli {
namespace {

namespace json = llvm::json;

/// What a simulation takes memory and time for: each GPU has a place in each step, and a ring as many rounds as GPUs.
constexpr int64_t kMostGpus = 16'384, kMostGpusPerHost = 1024;

/// An object of the file. The first error stays.
class Fields {
public:
  Fields(const json::Object *object, std::string place, std::vector<std::string> known, Status &status)
      : object(object), place(std::move(place)), status(status) {
    for (const auto &field : object ? *object : json::Object()) {
      const std::string name = field.first.str();
      if (std::find(known.begin(), known.end(), name) == known.end())
        fail(name, "is no field; there are " + joined(known));
    }
  }

  bool has(const char *name) const { return object && object->get(name); }

  /// A finite number from `least` on, more than it where `isOpen`.
  void number(const char *name, double &into, bool isOpen, bool isWanted) {
    const json::Value *value = object ? object->get(name) : nullptr;
    if (!value) {
      if (isWanted)
        fail(name, "is missing");
      return;
    }
    std::optional<double> found = value->getAsNumber();
    constexpr double kMost = 1e30; // sums of times stay finite
    if (!found || !(*found >= 0 && *found <= kMost) || (isOpen && *found == 0))
      return fail(name, isOpen ? "wants a number above 0" : "wants a number from 0 on");
    into = *found;
  }

  void count(const char *name, int64_t &into, int64_t least, int64_t most, bool isWanted) {
    const json::Value *value = object ? object->get(name) : nullptr;
    if (!value) {
      if (isWanted)
        fail(name, "is missing");
      return;
    }
    std::optional<int64_t> found = value->getAsInteger();
    if (!found || *found < least || *found > most)
      return fail(name, "wants a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    into = *found;
  }

  const json::Object *inner(const char *name) {
    const json::Value *value = object ? object->get(name) : nullptr;
    if (value && !value->getAsObject())
      fail(name, "wants an object");
    return value ? value->getAsObject() : nullptr;
  }

  void fail(const std::string &name, const std::string &message) {
    if (status.ok())
      status = invalidError(message, place + name);
  }

private:
  const json::Object *object;
  std::string place;
  Status &status;
};

void readLink(const json::Object *object, const std::string &place, analysis::MeshLink &link, bool isWanted, Status &status,
              bool *portPerHost = nullptr) {
  if (!object && !isWanted)
    return;
  std::vector<std::string> known = {"latency", "message", "bytes_per_second"};
  if (portPerHost)
    known.push_back("port");
  Fields fields(object, place + ".", known, status);
  fields.number("latency", link.latency, false, false);
  fields.number("message", link.messageSeconds, false, false);
  fields.number("bytes_per_second", link.bytesPerSecond, true, true);
  if (portPerHost && fields.has("port")) {
    std::optional<llvm::StringRef> port = object->getString("port");
    if (port != "gpu" && port != "host")
      fields.fail("port", "wants \"gpu\" or \"host\"");
    *portPerHost = port == "host";
  }
}

void readSpeeds(const json::Object &root, const std::string &place, analysis::MeshTopology &topology, Status &status) {
  const json::Value *value = root.get("speeds");
  if (!value)
    return;
  const json::Array *list = value->getAsArray();
  if (!list) {
    if (status.ok())
      status = invalidError("wants a list", place);
    return;
  }
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string here = place + "[" + std::to_string(i) + "].";
    const json::Object *object = (*list)[i].getAsObject();
    if (!object) {
      if (status.ok())
        status = invalidError("wants an object", here.substr(0, here.size() - 1));
      return;
    }
    Fields fields(object, here, {"rank", "speed"}, status);
    int64_t rank = 0;
    double speed = 1;
    fields.count("rank", rank, 0, topology.gpus() - 1, true);
    fields.number("speed", speed, true, true);
    if (!topology.speeds.emplace(rank, speed).second)
      fields.fail("rank", "stands here twice");
  }
}

} // namespace

Result<analysis::MeshTopology> readTopology(const std::string &path) {
  Result<std::string> text = readFile(path);
  if (!text)
    return text.status();
  llvm::Expected<json::Value> parsed = json::parse(*text);
  if (!parsed)
    return invalidError("is no JSON: " + llvm::toString(parsed.takeError()), path);
  const json::Object *root = parsed->getAsObject();
  if (!root)
    return invalidError("wants an object", path);
  analysis::MeshTopology topology;
  Status status;
  const std::string place = path + ": ";
  Fields fields(root, place, {"hosts", "gpus_per_host", "peers", "network", "meeting", "kernels", "speeds"}, status);
  fields.count("hosts", topology.hosts, 1, kMostGpus, false);
  fields.count("gpus_per_host", topology.gpusPerHost, 1, kMostGpusPerHost, true);
  if (topology.gpus() > kMostGpus)
    fields.fail("hosts", "makes more than " + std::to_string(kMostGpus) + " GPUs");
  readLink(fields.inner("peers"), place + "peers", topology.peers, topology.gpusPerHost > 1, status);
  readLink(fields.inner("network"), place + "network", topology.network, topology.hosts > 1, status, &topology.portPerHost);
  fields.number("meeting", topology.meetingSeconds, false, false);
  Fields kernels(fields.inner("kernels"), place + "kernels.", {"seconds", "tile_seconds", "bytes_per_second", "flops"}, status);
  kernels.number("seconds", topology.kernels.seconds, false, false);
  kernels.number("tile_seconds", topology.kernels.tileSeconds, false, false);
  kernels.number("bytes_per_second", topology.kernels.bytesPerSecond, true, true);
  kernels.number("flops", topology.kernels.flops, true, true);
  readSpeeds(*root, place + "speeds", topology, status);
  if (!status.ok())
    return status;
  return topology;
}

} // namespace lathe::cli
