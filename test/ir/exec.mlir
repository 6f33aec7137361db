// RUN: %lathe-opt %s | %lathe-opt | FileCheck %s

// Every op of a plan, printed and parsed.
module @cpu attributes {lathe.target = "x86-64-v3"} {
  lathe.symbol @P {min = 0, max = 32, opt = 8, multiple_of = 1, origin = "past[1]"}
  lathe.state @past {type = tensor<2x32xf32>, axis = 1 : i64, length = "P", input = "past", output = "present"}
  // CHECK: exec.kernel @neg_0
  exec.kernel @neg_0 attributes {kind = #lathe.kernel_kind<pointwise>, flops = #lathe.dim<4>, bytes = #lathe.dim<32>,
      variants = [{guard = "", spec = "config \22pointwise\22\0Abuffer in read f32 [4] align 64\0Abuffer out write f32 [4] align 64\0Alaunch \22neg_0\22 grid [1, 1, 1] block [1, 1, 1]\0A"}]} {
  ^bb0(%x: tensor<4xf32>):
    %y = lathe.neg %x : (tensor<4xf32>) -> tensor<4xf32>
    lathe.yield %y : tensor<4xf32>
  }
  // CHECK: exec.program @main
  exec.program @main {
    // CHECK: exec.size "P"
    exec.size "P" {min = 0, max = 32, opt = 8, multiple_of = 1, origin = #exec.origin<state>, index = 0, axis = -1}
    // CHECK: exec.guard "P + 1 <= 32" {message = "full", where = "node"}
    exec.guard "P + 1 <= 32" {message = "full", where = "node"}
    // CHECK: exec.state @past
    exec.state @past
    // CHECK: exec.arena <64>
    exec.arena <64>
    // CHECK: %[[X:.*]] = exec.buffer "x" {kind = #exec.kind<input>} : tensor<4xf32>
    %x = exec.buffer "x" {kind = #exec.kind<input>} : tensor<4xf32>
    // CHECK: exec.input "x" %[[X]] : tensor<4xf32>
    exec.input "x" %x : tensor<4xf32>
    // CHECK: exec.buffer "v" of %[[X]] : tensor<4xf32> {kind = #exec.kind<view>} : tensor<2x2xf32>
    %v = exec.buffer "v" of %x : tensor<4xf32> {kind = #exec.kind<view>} : tensor<2x2xf32>
    %a = exec.buffer "a" {kind = #exec.kind<arena>, offset = #lathe.dim<0>} : tensor<4xf32>
    // CHECK: exec.buffer "w" {kind = #exec.kind<weight>, packing = "panels32", value = dense<1.000000e+00> : tensor<4xf32>}
    %w = exec.buffer "w" {kind = #exec.kind<weight>, packing = "panels32", value = dense<1.0> : tensor<4xf32>} : tensor<4xf32>
    // CHECK: exec.output "y"
    %y = exec.buffer "y" {kind = #exec.kind<output>} : tensor<4xf32>
    exec.output "y" %y : tensor<4xf32>
    // CHECK: exec.launch @neg_0(%{{.*}}, %{{.*}}) {nodes = ["n"], symbols = {}}
    exec.launch @neg_0(%x, %a) {symbols = {}, nodes = ["n"]} : tensor<4xf32>, tensor<4xf32>
    // CHECK: exec.copy %{{.*}} to %{{.*}} : tensor<4xf32>, tensor<4xf32>
    exec.copy %a to %y : tensor<4xf32>, tensor<4xf32>
    // CHECK: exec.bind "P" %[[X]] {element = 0 : i64}
    exec.bind "P" %x {element = 0} : tensor<4xf32>
    // CHECK: exec.tap "t"
    exec.tap "t" %y : tensor<4xf32>
    // CHECK: exec.call "f"(%{{.*}}, %{{.*}}) {config = {}, custom, num_inputs = 1 : i64}
    exec.call "f"(%x, %y) {num_inputs = 1, config = {}, custom} : tensor<4xf32>, tensor<4xf32>
    // CHECK: exec.advance @past <1>
    exec.advance @past <1>
  }
}
