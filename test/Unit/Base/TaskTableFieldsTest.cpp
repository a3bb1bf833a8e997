//===- TaskTableFieldsTest.cpp - Task tables written field by field -------===//
//
// Tables that the builder cannot make: whole as FlatBuffers, and wrong in what they say.
//
//===----------------------------------------------------------------------===//
#include "partita/Base/Bundle/TaskTable.h"

#include <catch2/catch.hpp>

#include <functional>
#include <optional>

using namespace partita;

/// A table with `edit` done to it between the parts that every table has.
static std::string reasonOf(
    const std::function<void(flatbuffers::FlatBufferBuilder &, fb::TaskTableBuilder &)>
        &edit,
    const std::function<void(flatbuffers::FlatBufferBuilder &)> &before = {}) {
  flatbuffers::FlatBufferBuilder out;
  if (before)
    before(out);
  fb::TaskTableBuilder table(out);
  edit(out, table);
  fb::FinishTaskTableBuffer(out, table.Finish());
  auto read = TaskTable::read(
      {reinterpret_cast<const std::byte *>(out.GetBufferPointer()), out.GetSize()});
  return read ? "none" : read.error().message;
}

namespace {
/// The lists of a table's tasks: one segment of all.
struct Tasks {
  using Builder = flatbuffers::FlatBufferBuilder;
  std::vector<flatbuffers::Offset<fb::Descriptor>> descriptors;
  std::vector<fb::Call> calls{{0, 0}};
  std::vector<int32_t> operands;
  std::vector<fb::Task> tasks{{0, 0, 1}};
  std::string sources = "n";
  bool hasKernel = false; ///< and a buffer
  std::optional<uint32_t> numTasks;

  /// Behind the parts that the descriptors need.
  void write(Builder &out) {
    auto count = numTasks.value_or(static_cast<uint32_t>(tasks.size()));
    auto segment = fb::CreateSegmentDirect(out, "request", count);
    written.segments = out.CreateVector(&segment, 1);
    written.descriptors = out.CreateVector(descriptors);
    written.calls = out.CreateVectorOfStructs(calls);
    written.operands = out.CreateVector(operands);
    written.tasks = out.CreateVectorOfStructs(tasks);
    written.sources = out.CreateString(sources);
    fb::Buffer buffer(0, 0, 0, fb::Space::Arena);
    written.buffers = out.CreateVectorOfStructs(&buffer, hasKernel ? 1 : 0);
    auto name = out.CreateString("k");
    written.kernels = out.CreateVector(&name, hasKernel ? 1 : 0);
  }
  void add(fb::TaskTableBuilder &table) const {
    table.add_segments(written.segments);
    table.add_descriptors(written.descriptors);
    table.add_calls(written.calls);
    table.add_operands(written.operands);
    table.add_tasks(written.tasks);
    table.add_sources(written.sources);
    table.add_buffers(written.buffers);
    table.add_kernels(written.kernels);
  }

private:
  template <typename T> using List = flatbuffers::Offset<flatbuffers::Vector<T>>;
  struct {
    List<flatbuffers::Offset<fb::Segment>> segments;
    List<flatbuffers::Offset<fb::Descriptor>> descriptors;
    List<const fb::Call *> calls;
    List<int32_t> operands;
    List<const fb::Task *> tasks;
    flatbuffers::Offset<flatbuffers::String> sources;
    List<const fb::Buffer *> buffers;
    List<flatbuffers::Offset<flatbuffers::String>> kernels;
  } written;
};
} // namespace

TEST_CASE("tables that hold together and say what cannot be") {
  const std::string at = "the task table is damaged: ";
  CHECK(reasonOf([](auto &, auto &) {}) == at + "it has no segment");
  auto buffersOf = [](fb::Buffer buffer) {
    flatbuffers::Offset<flatbuffers::Vector<const fb::Buffer *>> list;
    return reasonOf([&](auto &, auto &table) { table.add_buffers(list); },
                    [&](auto &out) { list = out.CreateVectorOfStructs(&buffer, 1); });
  };
  CHECK(buffersOf({0, 64, 0, fb::Space::Arena}) ==
        at + "buffer 0 leaves its region of 0 bytes");
  CHECK(buffersOf({0, 0, 0, fb::Space::State}) == at + "it has no segment");
  CHECK(buffersOf({0, 0, 64, fb::Space::Arena}) ==
        at + "buffer 0 has 1 slots 64 bytes apart");
  CHECK(buffersOf({0, 0, 0, static_cast<fb::Space>(77)}) ==
        at + "buffer 0 is in an unknown space");
  // One task, what `make` says that it does.
  auto taskOf = [](auto make) {
    Tasks tasks;
    return reasonOf([&](auto &, auto &table) { tasks.add(table); },
                    [&](auto &out) {
                      tasks.descriptors = {make(out)};
                      tasks.write(out);
                    });
  };
  using fb::Params;
  auto describe = [](auto &out, Params kind, auto params) {
    return fb::CreateDescriptor(out, 0, 0, kind, params.Union());
  };
  CHECK(taskOf([](auto &out) { return fb::CreateDescriptor(out); }) ==
        at + "task 0 (n) does nothing");
  CHECK(taskOf([&](auto &out) {
          return describe(out, static_cast<Params>(99), fb::CreateFill(out));
        }) == "the task table has a task of kind 99, which this runtime does not know "
              "(task 0 (n))");
  CHECK(taskOf([&](auto &out) {
          return describe(out, Params::Kernel, fb::CreateKernel(out, 3));
        }) == at + "task 0 (n, kernel): no such kernel");
  CHECK(taskOf([&](auto &out) {
          return describe(out, Params::Kernel,
                          fb::CreateKernel(out, 0, 0, 1, 1, 0, 0, /*inputs=*/1));
        }) == at + "task 0 (n, kernel): it has fewer operands than inputs");
  auto dividedOf = [&](int64_t units, int32_t parts) {
    return taskOf([=](auto &out) {
      return describe(out, Params::Kernel, fb::CreateKernel(out, 0, 0, units, parts));
    });
  };
  CHECK(dividedOf(0, 1) ==
        at + "task 0 (n, kernel): units is 0, expected 1 to 9223372036854775807");
  CHECK(dividedOf(4, 5) == at + "task 0 (n, kernel): parts is 5, expected 1 to 4");
  CHECK(dividedOf(4, -1) == at + "task 0 (n, kernel): parts is -1, expected 1 to 4");
  CHECK(taskOf([&](auto &out) {
          return describe(out, Params::Fill, fb::CreateFill(out, 200));
        }) == at + "task 0 (n, fill): the element type is 200, expected 0 to 22");
  // f8 is stored and moved; nothing is summed in it.
  CHECK(taskOf([&](auto &out) {
          fb::AllReduceBuilder reduce(out);
          reduce.add_dtype(13);
          return describe(out, Params::AllReduce, reduce.Finish());
        }) == at + "task 0 (n, all-reduce): the element type is 13, expected 0 to 12");
  CHECK(taskOf([&](auto &out) {
          return describe(out, Params::Exchange, fb::CreateExchange(out, 0, 5, 6));
        }) == at + "task 0 (n, exchange): 0 operands, expected 2");
}

TEST_CASE("tasks, calls and descriptors refer to what is there, and all are used") {
  const std::string at = "the task table is damaged: ";
  // Three tasks of two calls, which have one descriptor.
  auto reason = [](auto edit) {
    Tasks tasks;
    return reasonOf([&](auto &, auto &table) { tasks.add(table); },
                    [&](auto &out) {
                      auto kernel = fb::CreateKernel(out).Union();
                      tasks.descriptors = {
                          fb::CreateDescriptor(out, 1, 0, fb::Params::Kernel, kernel)};
                      tasks.calls = {{0, 0}, {0, 1}};
                      tasks.operands = {0, 0};
                      tasks.tasks = {{0, 0, 1}, {1, 0, 1}, {0, 0, 1}};
                      tasks.hasKernel = true;
                      edit(out, tasks);
                      tasks.write(out);
                    });
  };
  CHECK(reason([](auto &, Tasks &) {}) == "none");
  CHECK(reason([](auto &, Tasks &t) { t.tasks[1] = {2, 0, 1}; }) ==
        at + "task 1 is no call");
  CHECK(reason([](auto &, Tasks &t) { t.tasks[2] = {0, 1, 1}; }) ==
        at + "task 2: its source is no name");
  CHECK(reason([](auto &, Tasks &t) { t.tasks[2] = {0, 4000000000, 4000000000}; }) ==
        at + "task 2: its source is no name");
  CHECK(reason([](auto &, Tasks &t) { t.tasks[1] = {0, 0, 1}; }) ==
        at + "no task is call 1");
  CHECK(reason([](auto &, Tasks &t) { t.calls[1] = {1, 0}; }) ==
        at + "task 1 (n): no descriptor 1");
  for (uint32_t first : {2u, 4000000000u})
    CHECK(reason([&](auto &, Tasks &t) { t.calls[1] = {0, first}; }) ==
          at + "task 1 (n, kernel): its operands are not in the list of them");
  CHECK(reason([](auto &, Tasks &t) { t.operands[1] = 1; }) ==
        at + "task 1 (n, kernel): operand 0 is no buffer");
  CHECK(reason([](auto &, Tasks &t) { t.descriptors.push_back(t.descriptors[0]); }) ==
        at + "no call has descriptor 1");
  CHECK(reason([](auto &, Tasks &t) { t.numTasks = 2; }) ==
        at + "task 2 is in no segment");
  CHECK(reason([](auto &, Tasks &t) { t.numTasks = 4; }) ==
        at + "segment 'request' has 4 tasks, 3 are left");
}

TEST_CASE("a small table cannot describe a huge one") {
  Tasks tasks;
  auto reason = reasonOf([&](auto &, auto &table) { tasks.add(table); },
                         [&](auto &out) {
                           auto kernel = fb::CreateKernel(out).Union();
                           tasks.descriptors = {fb::CreateDescriptor(
                               out, 50000, 0, fb::Params::Kernel, kernel)};
                           tasks.operands.assign(50000, 0);
                           // Each call has all of them.
                           tasks.calls.assign(5000, {0, 0});
                           for (uint32_t i = 0; i < 5000; ++i)
                             tasks.tasks.emplace_back(i, 0, 1);
                           tasks.hasKernel = true;
                           tasks.write(out);
                         });
  CHECK(reason.find(": its lists are larger than the table") != std::string::npos);
}
