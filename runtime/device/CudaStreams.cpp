//===- CudaStreams.cpp - streams, events and time on a GPU ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is ahead of what: marks and waits of the host, streams and events of callers, streams of a plan.
//
//===----------------------------------------------------------------------===//

#include "CudaDevice.h"
#include "CudaScope.h"

namespace lathe::runtime {

using namespace cuda;

Result<CUevent> CudaDevice::makeEvent() {
  CUevent event = nullptr;
  LATHE_RETURN_IF_ERROR(check(driver.cuEventCreate(&event, kEventNoTiming), "cuEventCreate"));
  return event;
}

Status CudaDevice::pollEvent(CUevent event, const char *what) {
  Result<bool> over = pollUntil(Deadline::in(patience), [&]() -> Result<bool> {
    CUresult r = driver.cuEventQuery(event);
    if (r == kNotReady)
      return false;
    LATHE_RETURN_IF_ERROR(check(r, "cuEventQuery"));
    return true;
  });
  if (!over)
    return over.status();
  return *over ? okStatus()
               : Status(ErrorCode::Deadline, std::string(what) + " did not end within " +
                                            std::to_string(patience / 1000000) + " ms",
                        memory);
}

Status CudaDevice::sync() {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context, isEntered());
  for (size_t i = 0; i < streams.size(); ++i) {
    if (ends.size() <= i) {
      Result<CUevent> made = makeEvent();
      if (!made)
        return made.status();
      ends.push_back(*made);
    }
    LATHE_RETURN_IF_ERROR(check(driver.cuEventRecord(ends[i], streams[i]), "cuEventRecord"));
  }
  for (size_t i = 0; i < streams.size(); ++i)
    LATHE_RETURN_IF_ERROR(pollEvent(ends[i], "the work on the device"));
  return okStatus();
}

Result<MarkHandle> CudaDevice::makeMark() {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context, isEntered());
  Result<CUevent> made = makeEvent();
  if (!made)
    return made.status();
  return static_cast<MarkHandle>(*made);
}

void CudaDevice::destroyMark(MarkHandle mark) {
  if (!mark || *abandoned)
    return;
  Scope scope(driver, context, isEntered());
  driver.cuEventDestroy(static_cast<CUevent>(mark));
}

Status CudaDevice::setMark(MarkHandle mark) {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context, isEntered());
  return check(driver.cuEventRecord(static_cast<CUevent>(mark), stream), "cuEventRecord");
}

Result<bool> CudaDevice::reached(MarkHandle mark) {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context, isEntered());
  CUresult r = driver.cuEventQuery(static_cast<CUevent>(mark));
  if (r == kNotReady)
    return false;
  LATHE_RETURN_IF_ERROR(check(r, "cuEventQuery"));
  return true;
}

Status CudaDevice::waitForEvent(void *event) {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context, isEntered());
  return check(driver.cuStreamWaitEvent(stream, static_cast<CUevent>(event), 0),
               "cuStreamWaitEvent");
}

Status CudaDevice::recordEvent(void *event) {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context, isEntered());
  return check(driver.cuEventRecord(static_cast<CUevent>(event), stream), "cuEventRecord");
}

Result<void *> CudaDevice::inputStream() {
  std::lock_guard lock(inputsMutex);
  if (!inputs) {
    Scope scope(driver, context, isEntered());
    for (CUevent *event : {&inputsReady, &callersPoint}) {
      Result<CUevent> made = makeEvent();
      if (!made)
        return made.status();
      *event = *made;
    }
    CUstream made = nullptr;
    LATHE_RETURN_IF_ERROR(
        check(driver.cuStreamCreate(&made, kStreamNonBlocking), "cuStreamCreate"));
    inputs = made;
  }
  return static_cast<void *>(inputs.load());
}

Status CudaDevice::waitForStream(void *callers) {
  Result<void *> made = inputStream();
  if (!made)
    return made.status();
  std::lock_guard lock(inputsMutex);
  Scope scope(driver, context, isEntered());
  LATHE_RETURN_IF_ERROR(
      check(driver.cuEventRecord(callersPoint, static_cast<CUstream>(callers)), "cuEventRecord"));
  return check(driver.cuStreamWaitEvent(inputs, callersPoint, 0), "cuStreamWaitEvent");
}

Status CudaDevice::awaitInputs() {
  if (!inputs)
    return okStatus();
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context, isEntered());
  LATHE_RETURN_IF_ERROR(check(driver.cuEventRecord(inputsReady, inputs), "cuEventRecord"));
  return check(driver.cuStreamWaitEvent(stream, inputsReady, 0), "cuStreamWaitEvent");
}

void CudaDevice::enter() {
  driver.cuCtxPushCurrent(context);
  user.store(std::this_thread::get_id(), std::memory_order_relaxed);
}

void CudaDevice::leave() {
  user.store({}, std::memory_order_relaxed);
  CUcontext popped;
  driver.cuCtxPopCurrent(&popped);
}

Status CudaDevice::useStream(int number) {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context, isEntered());
  while (static_cast<size_t>(number) >= streams.size()) {
    CUstream made = nullptr;
    LATHE_RETURN_IF_ERROR(check(driver.cuStreamCreate(&made, kStreamNonBlocking), "cuStreamCreate"));
    streams.push_back(made);
  }
  stream = streams[number];
  return okStatus();
}

Status CudaDevice::signal(int number) {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context, isEntered());
  while (static_cast<size_t>(number) >= signals.size()) {
    Result<CUevent> made = makeEvent();
    if (!made)
      return made.status();
    signals.push_back(*made);
  }
  return check(driver.cuEventRecord(signals[number], stream), "cuEventRecord");
}

Status CudaDevice::await(int number) {
  LATHE_RETURN_IF_ERROR(lost);
  if (static_cast<size_t>(number) >= signals.size())
    return internalError("a step waits for a signal that nobody gave");
  return waitForEvent(signals[number]);
}

Status CudaDevice::beginTiming() {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context, isEntered());
  for (CUevent *e : {&startEvent, &endEvent})
    if (!*e)
      LATHE_RETURN_IF_ERROR(check(driver.cuEventCreate(e, 0), "cuEventCreate"));
  return check(driver.cuEventRecord(startEvent, stream), "cuEventRecord");
}

Result<double> CudaDevice::endTiming() {
  LATHE_RETURN_IF_ERROR(lost);
  Scope scope(driver, context, isEntered());
  LATHE_RETURN_IF_ERROR(check(driver.cuEventRecord(endEvent, stream), "cuEventRecord"));
  LATHE_RETURN_IF_ERROR(pollEvent(endEvent, "what is timed"));
  float milliseconds = 0;
  LATHE_RETURN_IF_ERROR(check(driver.cuEventElapsedTime(&milliseconds, startEvent, endEvent),
                              "cuEventElapsedTime"));
  return milliseconds * 1e-3;
}

} // namespace lathe::runtime
