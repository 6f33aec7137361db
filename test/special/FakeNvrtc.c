/*===- FakeNvrtc.c - an NVRTC that compiles nothing ----------------------===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * For tests that run kernels under emulation: every text becomes the same few bytes, which
 * the fake device takes for a cubin.
 *===--------------------------------------------------------------------===*/
#include <stddef.h>
#include <string.h>

static const char kCubin[] = "emulated";

int nvrtcVersion(int *major, int *minor) { return *major = 0, *minor = 0, 0; }
int nvrtcGetNumSupportedArchs(int *count) { return *count = 2, 0; }
int nvrtcGetSupportedArchs(int *archs) { return archs[0] = 80, archs[1] = 90, 0; }
int nvrtcCreateProgram(void **program, const char *source, const char *name, int headers,
                       const char *const *texts, const char *const *names) {
  return *program = (void *)kCubin, 0;
}
int nvrtcCompileProgram(void *program, int count, const char *const *options) { return 0; }
int nvrtcGetProgramLogSize(void *program, size_t *size) { return *size = 1, 0; }
int nvrtcGetProgramLog(void *program, char *log) { return *log = 0, 0; }
int nvrtcGetCUBINSize(void *program, size_t *size) { return *size = sizeof kCubin, 0; }
int nvrtcGetCUBIN(void *program, char *image) { return memcpy(image, kCubin, sizeof kCubin), 0; }
int nvrtcDestroyProgram(void **program) { return *program = NULL, 0; }
const char *nvrtcGetErrorString(int error) { return "none"; }
