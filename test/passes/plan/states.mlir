// RUN: %lathe-opt --lathe-donate --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-offsets --lathe-verify-planned --split-input-file %s | FileCheck %s
// RUN: %lathe-opt --lathe-donate --lathe-fuse --lathe-assign-roles --lathe-name-kernels --lathe-select --lathe-plan --lathe-offsets --remarks-filter=lathe --remark-policy=all --split-input-file %s 2>&1 >/dev/null | FileCheck %s --check-prefix=REMARK

// Of the states neither is a port. The scatter writes into the memory of one; the other is copied last, behind what
// reads its old value, and the symbol comes from the input that is port 0.
// CHECK-LABEL: exec.program @main
// CHECK: exec.size "B" {{.*}}index = 0 : i64
// CHECK: exec.state @cache
// CHECK: exec.state @calls
// CHECK: %[[X:.*]] = exec.buffer "x" {kind = #exec.kind<input>}
// CHECK: exec.input "x" %[[X]]
// CHECK-NOT: exec.input "c
// CHECK: %[[CACHE:.*]] = exec.buffer "cache" {kind = #exec.kind<state>}
// CHECK: %[[CALLS:.*]] = exec.buffer "calls" {index = 1 : i64, kind = #exec.kind<state>}
// CHECK: %[[PLACE:.*]] = exec.buffer "cache.next" of %[[CACHE]] {{.*}}kind = #exec.kind<view>
// CHECK: %[[NEXT:.*]] = exec.buffer "calls.next" {{.*}}kind = #exec.kind<arena>
// CHECK: %[[Y:.*]] = exec.buffer "y" {kind = #exec.kind<output>}
// CHECK: exec.output "y" %[[Y]]
// CHECK-NOT: exec.output
// CHECK: exec.launch @scatter{{.*}}(%[[PLACE]], %{{.*}}, %{{.*}}, %[[PLACE]])
// CHECK-NOT: exec.advance
// CHECK: exec.copy %[[NEXT]] to %[[CALLS]]
// CHECK-NOT: exec.copy
// REMARK: Remark=cache, Remark="' is updated in place
module attributes {lathe.target = "x86-64-v3"} {
  lathe.symbol @B {min = 1, max = 8, opt = 1, multiple_of = 1, origin = "x[0]"}
  lathe.state @cache {type = tensor<40x16xf32>, axis = -1 : i64, length = "", input = "cache", output = "cache.next"}
  lathe.state @calls {type = tensor<4xf32>, axis = -1 : i64, length = "", input = "calls", output = "calls.next", lathe.initial = dense<1.0> : tensor<4xf32>}
  func.func @main(%cache: tensor<40x16xf32> {lathe.name = "cache"}, %calls: tensor<4xf32> {lathe.name = "calls"},
                  %x: tensor<?x4xf32, #lathe.t<[B, 4]>> {lathe.name = "x"}, %i: tensor<3x1xi64> {lathe.name = "i"},
                  %u: tensor<3x16xf32> {lathe.name = "u"})
      -> (tensor<40x16xf32> {lathe.name = "cache.next"}, tensor<4xf32> {lathe.name = "calls.next"},
          tensor<?x4xf32, #lathe.t<[B, 4]>> {lathe.name = "y"}) {
    %0 = lathe.scatter_nd %cache, %i, %u : (tensor<40x16xf32>, tensor<3x1xi64>, tensor<3x16xf32>) -> tensor<40x16xf32>
    %1 = lathe.add %calls, %calls : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %2 = lathe.add %x, %calls : (tensor<?x4xf32, #lathe.t<[B, 4]>>, tensor<4xf32>) -> tensor<?x4xf32, #lathe.t<[B, 4]>>
    return %0, %1, %2 : tensor<40x16xf32>, tensor<4xf32>, tensor<?x4xf32, #lathe.t<[B, 4]>>
  }
}

// -----

// States that change places: the old values are saved ahead of the first copy.
// CHECK-LABEL: exec.program @swap
// CHECK: %[[A:.*]] = exec.buffer "a" {kind = #exec.kind<state>}
// CHECK: %[[B:.*]] = exec.buffer "b" {index = 1 : i64, kind = #exec.kind<state>}
// CHECK: exec.copy %[[B]] to %[[OLDB:.*]] :
// CHECK: exec.copy %[[A]] to %[[OLDA:.*]] :
// CHECK: exec.copy %[[OLDB]] to %[[A]]
// CHECK: exec.copy %[[OLDA]] to %[[B]]
module attributes {lathe.target = "x86-64-v3"} {
  lathe.state @a {type = tensor<4xf32>, axis = -1 : i64, length = "", input = "a", output = "a.next"}
  lathe.state @b {type = tensor<4xf32>, axis = -1 : i64, length = "", input = "b", output = "b.next"}
  func.func @swap(%a: tensor<4xf32> {lathe.name = "a"}, %b: tensor<4xf32> {lathe.name = "b"})
      -> (tensor<4xf32> {lathe.name = "a.next"}, tensor<4xf32> {lathe.name = "b.next"}) {
    return %b, %a : tensor<4xf32>, tensor<4xf32>
  }
}
