// RUN: %lathe-opt --lathe-verify-planned --split-input-file --verify-diagnostics %s

module attributes {lathe.target = "x86-64-v3"} {
  exec.program @main {
    %0 = exec.buffer "x" {kind = #exec.kind<input>} : tensor<4xf32>
    // expected-error @below {{launches a kernel that does not exist}}
    exec.launch @none(%0) {symbols = {}} : tensor<4xf32>
  }
}

// -----

module attributes {lathe.target = "x86-64-v3"} {
  // expected-error @below {{has no place in a plan}}
  func.func @main() {
    return
  }
}
