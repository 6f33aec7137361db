// RUN: %lathe-opt --lathe-offsets --verify-diagnostics %s | FileCheck %s

// Programs as the plan pass leaves them: what may share bytes, on one stream and on two.
module attributes {lathe.target = "sm_90a"} {
  lathe.symbol @N {max = 64 : i64, min = 1 : i64, multiple_of = 1 : i64, opt = 8 : i64, origin = "x[0]"}

  // The first copy's target is dead when the third is made.
  // CHECK-LABEL: exec.program @one
  // CHECK: exec.arena <512*N>
  // CHECK: exec.buffer "a" {{.*}}live = array<i64: 0, 2>, offset = #lathe.dim<0>
  // CHECK: exec.buffer "b" {{.*}}live = array<i64: 1, 3>, offset = #lathe.dim<256*N>
  // CHECK: exec.buffer "c" {{.*}}live = array<i64: 2, 4>, offset = #lathe.dim<0>
  exec.program @one {
    exec.size "N" {axis = 0 : i64, index = 0 : i64, max = 64 : i64, min = 1 : i64, multiple_of = 1 : i64, opt = 8 : i64, origin = #exec.origin<input>}
    %x = exec.buffer "x" {kind = #exec.kind<input>} : tensor<?x64xf32, #lathe.t<[N, 64]>>
    %y = exec.buffer "y" {kind = #exec.kind<output>} : tensor<?x64xf32, #lathe.t<[N, 64]>>
    %a = exec.buffer "a" {kind = #exec.kind<arena>} : tensor<?x64xf32, #lathe.t<[N, 64]>>
    %b = exec.buffer "b" {kind = #exec.kind<arena>} : tensor<?x64xf32, #lathe.t<[N, 64]>>
    %c = exec.buffer "c" {kind = #exec.kind<arena>} : tensor<?x64xf32, #lathe.t<[N, 64]>>
    exec.copy %x to %a : tensor<?x64xf32, #lathe.t<[N, 64]>>, tensor<?x64xf32, #lathe.t<[N, 64]>>
    exec.copy %a to %b : tensor<?x64xf32, #lathe.t<[N, 64]>>, tensor<?x64xf32, #lathe.t<[N, 64]>>
    exec.copy %b to %c : tensor<?x64xf32, #lathe.t<[N, 64]>>, tensor<?x64xf32, #lathe.t<[N, 64]>>
    exec.copy %c to %y : tensor<?x64xf32, #lathe.t<[N, 64]>>, tensor<?x64xf32, #lathe.t<[N, 64]>>
  }

  // Nothing orders the steps of %c behind those of %a and %b: it shares their memory no more.
  // CHECK-LABEL: exec.program @two
  // CHECK: exec.arena <768*N>
  // CHECK: exec.buffer "a"
  // CHECK: exec.buffer "b"
  // CHECK: exec.buffer "c" {{.*}}offset = #lathe.dim<512*N>
  exec.program @two {
    exec.size "N" {axis = 0 : i64, index = 0 : i64, max = 64 : i64, min = 1 : i64, multiple_of = 1 : i64, opt = 8 : i64, origin = #exec.origin<input>}
    %x = exec.buffer "x" {kind = #exec.kind<input>} : tensor<?x64xf32, #lathe.t<[N, 64]>>
    %y = exec.buffer "y" {kind = #exec.kind<output>} : tensor<?x64xf32, #lathe.t<[N, 64]>>
    %a = exec.buffer "a" {kind = #exec.kind<arena>} : tensor<?x64xf32, #lathe.t<[N, 64]>>
    %b = exec.buffer "b" {kind = #exec.kind<arena>} : tensor<?x64xf32, #lathe.t<[N, 64]>>
    %c = exec.buffer "c" {kind = #exec.kind<arena>} : tensor<?x64xf32, #lathe.t<[N, 64]>>
    exec.copy %x to %a : tensor<?x64xf32, #lathe.t<[N, 64]>>, tensor<?x64xf32, #lathe.t<[N, 64]>>
    exec.copy %a to %b : tensor<?x64xf32, #lathe.t<[N, 64]>>, tensor<?x64xf32, #lathe.t<[N, 64]>>
    exec.copy %x to %c {exec.stream = 1 : i64} : tensor<?x64xf32, #lathe.t<[N, 64]>>, tensor<?x64xf32, #lathe.t<[N, 64]>>
    exec.copy %c to %y {exec.stream = 1 : i64} : tensor<?x64xf32, #lathe.t<[N, 64]>>, tensor<?x64xf32, #lathe.t<[N, 64]>>
  }

  // An event does: the last step that touches %a is over when %c is made.
  // CHECK-LABEL: exec.program @ordered
  // CHECK: exec.arena <512*N>
  exec.program @ordered {
    exec.size "N" {axis = 0 : i64, index = 0 : i64, max = 64 : i64, min = 1 : i64, multiple_of = 1 : i64, opt = 8 : i64, origin = #exec.origin<input>}
    %x = exec.buffer "x" {kind = #exec.kind<input>} : tensor<?x64xf32, #lathe.t<[N, 64]>>
    %y = exec.buffer "y" {kind = #exec.kind<output>} : tensor<?x64xf32, #lathe.t<[N, 64]>>
    %a = exec.buffer "a" {kind = #exec.kind<arena>} : tensor<?x64xf32, #lathe.t<[N, 64]>>
    %b = exec.buffer "b" {kind = #exec.kind<arena>} : tensor<?x64xf32, #lathe.t<[N, 64]>>
    %c = exec.buffer "c" {kind = #exec.kind<arena>} : tensor<?x64xf32, #lathe.t<[N, 64]>>
    exec.copy %x to %a : tensor<?x64xf32, #lathe.t<[N, 64]>>, tensor<?x64xf32, #lathe.t<[N, 64]>>
    exec.copy %a to %b {exec.signal = 0 : i64} : tensor<?x64xf32, #lathe.t<[N, 64]>>, tensor<?x64xf32, #lathe.t<[N, 64]>>
    exec.copy %x to %c {exec.stream = 1 : i64, exec.waits = array<i64: 0>} : tensor<?x64xf32, #lathe.t<[N, 64]>>, tensor<?x64xf32, #lathe.t<[N, 64]>>
    exec.copy %c to %y {exec.stream = 1 : i64} : tensor<?x64xf32, #lathe.t<[N, 64]>>, tensor<?x64xf32, #lathe.t<[N, 64]>>
  }
}
