//===- TaskTableFieldsTest.cpp - Task tables written field by field -------===//
//
// Tables that the builder cannot make: whole as FlatBuffers, and wrong in what they say.
//
//===----------------------------------------------------------------------===//
#include "partita/Base/Bundle/TaskTable.h"

#include <catch2/catch.hpp>

#include <functional>

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
  auto tasksOf = [](auto make) {
    flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fb::Segment>>> list;
    return reasonOf([&](auto &, auto &table) { table.add_segments(list); },
                    [&](auto &out) {
                      std::vector<flatbuffers::Offset<fb::Task>> tasks = make(out);
                      auto segment = fb::CreateSegmentDirect(out, "request", &tasks);
                      list = out.CreateVector(&segment, 1);
                    });
  };
  using Tasks = std::vector<flatbuffers::Offset<fb::Task>>;
  CHECK(tasksOf([](auto &) { return Tasks(); }) == "none");
  CHECK(tasksOf([](auto &out) { return Tasks{fb::CreateTask(out)}; }) ==
        at + "task 0 does nothing");
  CHECK(
      tasksOf([](auto &out) {
        return Tasks{fb::CreateTask(out, 0, 0, 0, static_cast<fb::Params>(99),
                                    fb::CreateFill(out).Union())};
      }) ==
      "the task table has a task of kind 99, which this runtime does not know (task 0)");
  CHECK(tasksOf([](auto &out) {
          return Tasks{fb::CreateTask(out, 0, 0, 0, fb::Params::Kernel,
                                      fb::CreateKernel(out, 3).Union())};
        }) == at + "task 0 (, kernel): no such kernel");
  auto dividedOf = [&](int64_t units, int32_t parts) {
    return tasksOf([=](auto &out) {
      return Tasks{fb::CreateTask(out, 0, 0, 0, fb::Params::Kernel,
                                  fb::CreateKernel(out, 0, 0, units, parts).Union())};
    });
  };
  CHECK(dividedOf(0, 1) ==
        at + "task 0 (, kernel): units is 0, expected 1 to 9223372036854775807");
  CHECK(dividedOf(4, 5) == at + "task 0 (, kernel): parts is 5, expected 1 to 4");
  CHECK(dividedOf(4, -1) == at + "task 0 (, kernel): parts is -1, expected 1 to 4");
  CHECK(tasksOf([](auto &out) {
          return Tasks{fb::CreateTask(out, 0, 0, 0, fb::Params::Fill,
                                      fb::CreateFill(out, 200).Union())};
        }) == at + "task 0 (, fill): the element type is 200, expected 0 to 22");
  // f8 is stored and moved; nothing is summed in it.
  CHECK(tasksOf([](auto &out) {
          fb::AllReduceBuilder reduce(out);
          reduce.add_dtype(13);
          auto params = reduce.Finish().Union();
          return Tasks{fb::CreateTask(out, 0, 0, 0, fb::Params::AllReduce, params)};
        }) == at + "task 0 (, all-reduce): the element type is 13, expected 0 to 12");
  CHECK(tasksOf([](auto &out) {
          return Tasks{fb::CreateTask(out, 0, 0, 0, fb::Params::Exchange,
                                      fb::CreateExchange(out, 0, 5, 6).Union())};
        }) == at + "task 0 (, exchange): 0 operands, expected 2");
  // A short blob that describes lists without end, each one shared by all tasks.
  CHECK(tasksOf([](auto &out) {
          auto list = out.CreateVector(std::vector<int32_t>(20000, 0));
          auto fill = fb::CreateFill(out).Union();
          Tasks tasks;
          for (int i = 0; i < 2000; ++i)
            tasks.push_back(fb::CreateTask(out, 0, list, 0, fb::Params::Fill, fill));
          return tasks;
        }).find("damaged") != std::string::npos);
}

TEST_CASE("a small table cannot describe a huge one") {
  flatbuffers::FlatBufferBuilder out;
  auto list = out.CreateVector(std::vector<int32_t>(50000, 0));
  auto kernel = fb::CreateKernel(out).Union();
  std::vector<flatbuffers::Offset<fb::Task>> tasks;
  for (int i = 0; i < 5000; ++i)
    tasks.push_back(fb::CreateTask(out, 0, list, 0, fb::Params::Kernel, kernel));
  fb::Buffer buffer(0, 0, 0, fb::Space::Arena);
  auto buffers = out.CreateVectorOfStructs(&buffer, 1);
  std::vector<flatbuffers::Offset<flatbuffers::String>> names{out.CreateString("k")};
  auto kernels = out.CreateVector(names);
  auto segment = fb::CreateSegmentDirect(out, "request", &tasks);
  auto segments = out.CreateVector(&segment, 1);
  fb::FinishTaskTableBuffer(
      out, fb::CreateTaskTable(out, 0, 0, 0, 0, 0, buffers, 0, kernels, 0, segments));
  auto read = TaskTable::read(
      {reinterpret_cast<const std::byte *>(out.GetBufferPointer()), out.GetSize()});
  REQUIRE(!read);
  CHECK(read.error().message.find(": its lists are larger than the table") !=
        std::string::npos);
}
